'use strict';

const { Kit, start } = require('./kit.js');
const { World } = require('./world.js');

module.exports = { Kit, World, start };
