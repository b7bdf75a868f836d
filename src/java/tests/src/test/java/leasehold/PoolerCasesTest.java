package leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The cases behind PgBouncer in transaction mode. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class PoolerCasesTest extends HandOverCases {
    @Override
    public String on() {
        return "pooler";
    }

    @Test
    @Override
    void sqlstates_are_told_alike() throws Exception {
        super.sqlstates_are_told_alike();
    }

    @Test
    void broken_connections_cost_no_lease() throws Exception {
        broken_connections(site.client(LeaseClient.builder(site.url.replaceFirst("/\\w+\\?", "/apart?"))), "usename = 'apart'");
    }

    @Test
    void pooler_is_noticed() throws Exception {
        LeaseClient client = site.client();
        List<String> said = site.log(client);
        for (int i = 0; i < 2; i++) {
            Lease first = site.lease(client).acquire();
            var waiter = site.queue(client, 1);
            first.release();
            waiter.get().release();
        }
        assertEquals(1, said.size(), said.toString());
        assertTrue(said.get(0).contains("poll"), said.get(0));
    }

    @Test
    @Override
    void unreadable_requests_cost_no_lease() throws Exception {
        super.unreadable_requests_cost_no_lease();
    }
}
