package leasehold

import (
	"fmt"
	"strings"
	"unicode"
)

// The bounds of names, and the daemon's words about them: src/base/bounds.c. tests/lib/bounds.json has the cases.

func checkNamespace(namespace string) error {
	segments := strings.Split(namespace, ".")
	count := len(segments)
	if namespace == "" {
		count = 0
	}
	switch {
	case count < 1 || count > 16:
		return outOfBounds("namespace", "namespace", "must have 1 to 16 segments, has %d", count)
	case len(namespace) > 255:
		return outOfBounds("namespace", "namespace", "must be at most 255 bytes with the dots between segments, has %d", len(namespace))
	}
	for i, segment := range segments {
		if err := checkName("namespace", fmt.Sprintf("segment %d of namespace", i+1), segment, 63); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key string) error { return checkName("key", "key", key, 1024) }

func checkName(field, name, value string, most int) error {
	switch {
	case len(value) < 1 || len(value) > most:
		return outOfBounds(field, name, "must be 1 to %d bytes, has %d", most, len(value))
	case strings.ContainsFunc(value, unicode.IsControl):
		return outOfBounds(field, name, "must not contain control characters")
	}
	return nil
}

func checkOwner(owner string) error { return checkText("owner", "owner", owner, 255) }

func checkLabels(labels map[string]string) error {
	for name, value := range labels {
		if !isText(name) || !isText(value) {
			return wrong("labels", "strings of UTF-8 without NUL", labels)
		}
		if len(name) < 1 || len(name) > 63 {
			return outOfBounds("labels", "label_name", "must be 1 to 63 bytes, has %d", len(name))
		}
		if err := checkText("labels", "label_value", value, 255); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, name, value string, most int) error {
	if len(value) > most {
		return outOfBounds(field, name, "must be at most %d bytes, has %d", most, len(value))
	}
	return nil
}

func outOfBounds(field, name, format string, args ...any) error {
	bound := fmt.Sprintf(format, args...)
	return &ArgumentError{Field: field, Bound: bound, Message: name + " " + bound}
}
