package leasehold;

import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The same with a client of a daemon. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the servers")
class ShedLockDaemonTest extends ShedLockTest {
    @Override
    String on() {
        return "grpc";
    }
}
