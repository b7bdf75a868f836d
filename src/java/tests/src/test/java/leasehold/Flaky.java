package leasehold;

import leasehold.grpc.Daemons;

/** tests/lib/flaky_proxy.py before a daemon. */
final class Flaky implements DirectCases.Way {
    private final String id;
    final String target;

    Flaky() throws Exception {
        String answer = Site.ask("proxy", "{\"id\": 0}");
        id = Site.field(answer, "id");
        target = Site.field(answer, "target");
    }

    private void set(String json) throws Exception {
        Site.ask("proxy/set", "{\"id\": " + id + ", " + json + "}");
    }

    @Override
    public LeaseClient.Builder builder() {
        return LeaseClient.builder(Daemons.at(target)).patience(Site.seconds(20));
    }

    @Override
    public void freeze(boolean on) throws Exception {
        set("\"frozen\": " + on);
    }

    @Override
    public void keepAnswers(boolean on) throws Exception {
        decide(on ? "\"drop\"" : "\"pass\"");
    }

    @Override
    public void delayAnswer(boolean on) throws Exception {
        if (on) {
            decide("[\"delay\", 3], \"pass\"");
        }
    }

    /** What becomes of replies: JSON, the last for ever. */
    void decide(String actions) throws Exception {
        set("\"decide\": [" + actions + "]");
    }

    /** What becomes of requests. */
    void decideRequests(String actions) throws Exception {
        set("\"decide_request\": [" + actions + "]");
    }

    /** Those that are held up arrive. */
    void letRequestsGo() throws Exception {
        Site.ask("proxy/let_requests_go", "{\"id\": " + id + "}");
    }

    void refuse(boolean on) throws Exception {
        set("\"refusing\": " + on);
        if (on) {
            cut();
        }
    }

    void actAsHttp() throws Exception {
        set("\"http\": true");
    }

    void cut() throws Exception {
        Site.ask("proxy/cut", "{\"id\": " + id + "}");
    }

    String state() throws Exception {
        return Site.ask("proxy/state", "{\"id\": " + id + "}");
    }

    int count(String what) throws Exception {
        return Integer.parseInt(Site.field(state(), what));
    }
}
