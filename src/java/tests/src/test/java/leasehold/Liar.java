package leasehold;

import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;

/** tests/clients/lying_server.py. */
final class Liar {
    private static final Pattern LEASE_KEY = Pattern.compile("[0-9a-f-]{36}");
    final String target;
    private final String id;

    Liar() throws Exception {
        String answer = Site.ask("liar", "{}");
        id = Site.field(answer, "id");
        target = Site.field(answer, "target");
    }

    /** Fields of JSON. */
    void lie(String lies) throws Exception {
        Site.ask("liar/set", "{\"id\": " + id + ", \"lies\": {" + lies + "}}");
    }

    private String state() {
        try {
            return Site.ask("liar/state", "{\"id\": " + id + "}");
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    int renewals() {
        return Integer.parseInt(Site.field(state(), "renewals"));
    }

    private static List<String> keys(String state, String field) {
        return LEASE_KEY.matcher(state.replaceFirst("(?s).*\"" + field + "\": \\[([^]]*)\\].*", "$1")).results().map(MatchResult::group).toList();
    }

    /** What was asked for last. */
    boolean isGivenBack() {
        String state = state();
        List<String> asked = keys(state, "asked");
        return keys(state, "released").contains(asked.get(asked.size() - 1));
    }
}
