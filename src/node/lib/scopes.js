'use strict';

// A lease has one key, or several that were acquired in one step.

function refsOf({ leaseKey, durationMs, scopes, namespace, key, onAsked }) {
  if (key === '') return []; // no tick is claimed yet
  return (scopes ?? [{ namespace, key }]).map((scope) => ({ namespace: scope.namespace, key: scope.key, leaseKey, durationMs, isListening: Boolean(onAsked) }));
}

/** One lease of several keys: it lasts as long as all do. */
function together(grants) {
  return {
    token: grants[0].token,
    tokens: grants.map(({ token }) => token),
    units: 0,
    slots: [],
    deadline: Math.min(...grants.map(({ deadline }) => deadline)),
    isFinal: grants.some(({ isFinal }) => isFinal),
  };
}

/** The answer to the renewal of one lease, of one key or several. */
function combined(beats) {
  return beats.find(({ outcome }) => outcome === 'lost') ?? beats.find(({ outcome }) => outcome !== 'ok')
    ?? { ...beats[0], remainingMs: Math.min(...beats.map(({ remainingMs }) => remainingMs)), isFinal: beats.some(({ isFinal }) => isFinal) };
}

module.exports = { combined, refsOf, together };
