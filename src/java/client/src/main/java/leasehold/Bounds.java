package leasehold;

import java.nio.charset.StandardCharsets;

/** The bounds of names, and the daemon's words about them: src/base/bounds.c. tests/lib/bounds.json has the cases. */
final class Bounds {
    private static final int SEGMENTS = 16;
    private static final int NAMESPACE = 255;
    private static final int SEGMENT = 63;
    private static final int KEY = 1024;
    private static final int OWNER = 255;
    private static final int REASON = 1024;
    private static final int LABEL_NAME = 63;
    private static final int LABEL_VALUE = 255;

    private Bounds() {
    }

    static String namespace(String value) {
        String[] segments = arrives("namespace", value).split("\\.", -1);
        int count = value.isEmpty() ? 0 : segments.length;
        if (count < 1 || count > SEGMENTS) {
            throw refused("namespace", "namespace", "must have 1 to " + SEGMENTS + " segments, has " + count);
        }
        if (bytes(value) > NAMESPACE) {
            throw refused("namespace", "namespace", "must be at most " + NAMESPACE + " bytes with the dots between segments, has " + bytes(value));
        }
        for (int i = 0; i < count; i++) {
            name("namespace", "segment " + (i + 1) + " of namespace", segments[i], SEGMENT);
        }
        return value;
    }

    static String key(String value) {
        name("key", "key", arrives("key", value), KEY);
        return value;
    }

    static String owner(String value) {
        text("owner", "owner", arrives("owner", value), OWNER);
        return value;
    }

    /** Of a request to hand over, or of its refusal. */
    static String reason(String value, int least) {
        if (value.length() < least) {
            throw refused("reason", "reason", "must be " + least + " to " + REASON + " bytes, has 0");
        }
        text("reason", "reason", arrives("reason", value), REASON);
        return value;
    }

    static void label(String name, String value) {
        int bytes = bytes(arrives("labels", name));
        if (bytes < 1 || bytes > LABEL_NAME) {
            throw refused("labels", "label_name", "must be 1 to " + LABEL_NAME + " bytes, has " + bytes);
        }
        text("labels", "label_value", arrives("labels", value), LABEL_VALUE);
    }

    private static void text(String field, String name, String value, int most) {
        if (bytes(value) > most) {
            throw refused(field, name, "must be at most " + most + " bytes, has " + bytes(value));
        }
    }

    private static void name(String field, String name, String value, int most) {
        if (value.isEmpty() || bytes(value) > most) {
            throw refused(field, name, "must be 1 to " + most + " bytes, has " + bytes(value));
        }
        if (value.codePoints().anyMatch(Character::isISOControl)) {
            throw refused(field, name, "must not contain control characters");
        }
    }

    /** Text that arrives as it is: a lone surrogate would become another character, and two keys one. */
    private static String arrives(String field, String value) {
        if (value.indexOf(0) >= 0 || !StandardCharsets.UTF_8.newEncoder().canEncode(value)) {
            throw new LeaseException.InvalidArgument(field, "a string of Unicode without NUL; it is \"" + value + "\"", null);
        }
        return value;
    }

    private static int bytes(String value) {
        return value.getBytes(StandardCharsets.UTF_8).length;
    }

    private static LeaseException.InvalidArgument refused(String field, String name, String bound) {
        return new LeaseException.InvalidArgument(name + " " + bound, field, bound, null);
    }
}
