package leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The client in virtual threads, with a JDK that has them. One carrier runs them all: where one is pinned and waits for another, all stand still. */
@EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_SQL", matches = ".+", disabledReason = "tests/clients/java/run starts the databases")
class VirtualThreadsTest {
    private static final String JDK = System.getenv("LEASEHOLD_TEST_JDK");

    @Test
    @EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_JDK", matches = ".+", disabledReason = "/usr/lib/jvm has no JDK of 21 or later")
    void virtual_threads_over_sql() throws Exception {
        virtual_threads("sql", System.getenv("LEASEHOLD_TEST_SQL"), 40); // each that waits has a connection
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "LEASEHOLD_TEST_JDK", matches = ".+", disabledReason = "/usr/lib/jvm has no JDK of 21 or later")
    void virtual_threads_over_grpc() throws Exception {
        virtual_threads("grpc", System.getenv("LEASEHOLD_TEST_DAEMON"), 200);
    }

    private static void virtual_threads(String on, String to, int n) throws Exception {
        try (Site site = new Site(on, "virtual")) {
            String namespace = "virtual." + on;
            String path = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
            Process process = new ProcessBuilder(JDK + "/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djdk.virtualThreadScheduler.parallelism=1", "-Djdk.virtualThreadScheduler.maxPoolSize=1",
                    "-cp", path, "src/test/programs/Virtual.java", to, namespace, String.valueOf(n)).redirectErrorStream(true).start();
            site.atEnd(() -> process.destroyForcibly().waitFor());
            process.onExit().orTimeout(4, TimeUnit.MINUTES).whenComplete((unused, late) -> process.destroyForcibly()); // a bound, not a measurement
            List<String> said = new ArrayList<>();
            for (String line : (Iterable<String>) process.inputReader().lines()::iterator) {
                if (line.startsWith("end ")) {
                    Site.await("the end of " + line, () -> isEnded(site, namespace, line.substring(4)));
                } else if (!line.startsWith("WARNING: ") && !line.isEmpty()) { // Java's, about Netty
                    said.add(line);
                }
            }
            assertEquals(List.of("closed " + n / 2 + " held, " + n / 2 + " waited", "interrupted " + n, "interrupted by a loss " + n, "renewed " + n,
                    "the recording sees a pinned thread", "waited [10]"), said.stream().sorted().toList());
            assertEquals(0, process.waitFor());
        }
    }

    /** False: a renewal has the row just then. */
    private static boolean isEnded(Site site, String namespace, String key) {
        try {
            site.sql("select from leasehold.force_release('%s', '%s', 'a test')", namespace, key);
            return true;
        } catch (IllegalStateException busy) {
            return false;
        }
    }
}
