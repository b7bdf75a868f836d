package leasehold;

import java.util.Optional;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestWatcher;

/** Prints a line for each test, as tests/clients/run wants it. */
public class Reporter implements TestWatcher {
    @Override
    public void testSuccessful(ExtensionContext context) {
        print(context, "passed");
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
        Optional<String> on = context.getTestInstance().filter(Cases.class::isInstance).map(each -> ((Cases) each).on());
        System.out.println((on.isPresent() ? "case " + name + " on " + on.get() : "test java-" + name) + " " + outcome);
    }
}
