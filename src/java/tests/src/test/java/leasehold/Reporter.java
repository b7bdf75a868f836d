package leasehold;

import java.util.Optional;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestWatcher;

/** Prints a line for each test, as tests/clients/run wants it. What has failed is run again, with leasehold.again: then the second try counts. */
public class Reporter implements TestWatcher {
    /** In the run with the oldest libraries: in the names of tests and scopes, for the runs share databases. */
    static final String LIBRARIES = System.getProperty("leasehold.libraries", "");

    /** A case of cases.json, on one of its transports. */
    interface Case {
        String on();
    }

    @Override
    public void testSuccessful(ExtensionContext context) {
        print(context, "passed");
    }

    @Override
    public void testDisabled(ExtensionContext context, Optional<String> reason) {
        print(context, "skipped: " + reason.orElse("it says no reason"));
    }

    @Override
    public void testFailed(ExtensionContext context, Throwable cause) {
        print(context, "failed");
    }

    @Override
    public void testAborted(ExtensionContext context, Throwable cause) {
        print(context, "failed");
    }

    private static void print(ExtensionContext context, String outcome) {
        String name = context.getRequiredTestMethod().getName();
        String with = context.getRequiredTestClass().getSimpleName().endsWith("DaemonTest") ? "-grpc" : "";
        Optional<String> on = context.getTestInstance().filter(Case.class::isInstance).map(each -> ((Case) each).on());
        String test = on.isPresent() && LIBRARIES.isEmpty() ? "case " + name + " on " + on.get() : "test java" + LIBRARIES + "-" + name
                + on.map(each -> "-" + each).orElse(with);
        boolean isFirst = outcome.equals("failed") && !Boolean.getBoolean("leasehold.again");
        System.out.println(test + " " + outcome + (isFirst ? " once" : ""));
    }
}
