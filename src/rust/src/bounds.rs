//! The bounds of names, and the daemon's words about them: src/base/bounds.c. tests/lib/bounds.json has the cases.

use crate::error::Error;

pub(crate) fn check_namespace(namespace: &str) -> Result<(), Error> {
    check_text("namespace", namespace)?;
    let segments: Vec<&str> = if namespace.is_empty() { vec![] } else { namespace.split('.').collect() };
    if segments.is_empty() || segments.len() > 16 {
        return Err(Error::out_of_bounds("namespace", "namespace", format!("must have 1 to 16 segments, has {}", segments.len())));
    }
    if namespace.len() > 255 {
        let bound = format!("must be at most 255 bytes with the dots between segments, has {}", namespace.len());
        return Err(Error::out_of_bounds("namespace", "namespace", bound));
    }
    segments.iter().enumerate().try_for_each(|(i, segment)| check_name("namespace", &format!("segment {} of namespace", i + 1), segment, 63))
}

pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    check_text("key", key)?;
    check_name("key", "key", key, 1024)
}

pub(crate) fn check_owner(owner: &str) -> Result<(), Error> {
    check_text("owner", owner)?;
    check_most("owner", "owner", owner, 255)
}

pub(crate) fn check_labels<'a>(labels: impl Iterator<Item = (&'a String, &'a String)>) -> Result<(), Error> {
    for (name, value) in labels {
        check_text("labels", name)?;
        check_text("labels", value)?;
        check_length("labels", "label_name", name, 63)?;
        check_most("labels", "label_value", value, 255)?;
    }
    Ok(())
}

pub(crate) fn check_units(units: u32) -> Result<(), Error> {
    if !(1..=1_000_000).contains(&units) { Err(Error::wrong("units", "1 to 1000000", units)) } else { Ok(()) }
}

pub(crate) fn check_priority(priority: u32) -> Result<(), Error> {
    if priority > 1000 { Err(Error::wrong("priority", "0 to 1000", priority)) } else { Ok(()) }
}

/// Of a request to hand over, or of its refusal.
pub(crate) fn check_reason(words: &str, least: usize) -> Result<(), Error> {
    check_text("reason", words)?;
    if words.len() < least {
        return Err(Error::out_of_bounds("reason", "reason", format!("must be {least} to 1024 bytes, has {}", words.len())));
    }
    check_most("reason", "reason", words, 1024)
}

/// PostgreSQL stores no NUL.
fn check_text(field: &str, value: &str) -> Result<(), Error> {
    if value.contains('\0') { Err(Error::wrong(field, "a string without NUL", value)) } else { Ok(()) }
}

fn check_name(field: &str, name: &str, value: &str, most: usize) -> Result<(), Error> {
    check_length(field, name, value, most)?;
    if value.chars().any(char::is_control) {
        return Err(Error::out_of_bounds(field, name, "must not contain control characters".into()));
    }
    Ok(())
}

fn check_length(field: &str, name: &str, value: &str, most: usize) -> Result<(), Error> {
    if value.is_empty() || value.len() > most {
        return Err(Error::out_of_bounds(field, name, format!("must be 1 to {most} bytes, has {}", value.len())));
    }
    Ok(())
}

fn check_most(field: &str, name: &str, value: &str, most: usize) -> Result<(), Error> {
    if value.len() > most {
        return Err(Error::out_of_bounds(field, name, format!("must be at most {most} bytes, has {}", value.len())));
    }
    Ok(())
}
