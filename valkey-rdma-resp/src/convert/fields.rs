//! [`Fields`]: a hash, field by field, for structs.

use super::{FromValue, UnexpectedReply, pairs};
use crate::value::Value;

/// The fields of a hash by their names, such as the reply to HGETALL: [`Value::into_fields`]. [`take`](Self::take) converts one after
/// the other, and its errors name them.
///
/// ```
/// use valkey_rdma_resp::{FromValue, UnexpectedReply, Value};
///
/// struct User {
///     name: String,
///     age: Option<u8>,
/// }
///
/// impl FromValue for User {
///     fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
///         let mut fields = value.into_fields()?;
///         Ok(Self { name: fields.take("name")?, age: fields.take("age")? })
///     }
/// }
///
/// let reply = Value::Map(vec![(Value::Bulk("name".into()), Value::Bulk("Ada".into()))]);
/// let user: User = reply.convert()?;
/// assert_eq!((user.name.as_str(), user.age), ("Ada", None));
///
/// let wrong = Value::Map(vec![(Value::Bulk("age".into()), Value::Bulk("36".into()))]);
/// let text = wrong.convert::<User>().err().map(|error| error.to_string()).unwrap_or_default();
/// assert!(text.starts_with("\"name\" of the reply: expected a value, got nothing"), "{text}");
/// # Ok::<_, UnexpectedReply>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fields {
    /// Those that were not taken, with their index in the reply.
    left: Vec<(usize, Value, Value)>,
}

impl Value {
    /// The fields of a hash: of a map, or of keys and values in an array, as RESP2 has them. A key that does not exist is a hash
    /// without fields to HGETALL.
    ///
    /// # Errors
    /// [`UnexpectedReply`] if the value is of another type.
    pub fn into_fields(self) -> Result<Fields, UnexpectedReply> {
        let pairs: Vec<(Value, Value)> = pairs(self)?;
        let left = pairs.into_iter().enumerate().map(|(index, (name, value))| (index, name, value));
        Ok(Fields { left: left.collect() })
    }
}

impl Fields {
    /// Takes a field out and converts it. One that the hash does not have is converted as a null: `None` where an `Option` is asked for,
    /// `false` as a `bool`.
    ///
    /// # Errors
    /// [`UnexpectedReply`] if the value does not convert, or [is missing](UnexpectedReply::missing). The text names the field.
    pub fn take<T: FromValue>(&mut self, name: &str) -> Result<T, UnexpectedReply> {
        match self.left.iter().position(|(_, key, _)| key.as_bytes() == Some(name.as_bytes())) {
            Some(at) => {
                let (index, name, value) = self.left.swap_remove(at);
                T::from_value(value).map_err(|error| error.within_pair(index, &name))
            }
            None => T::from_value(Value::Nil).map_err(|_| UnexpectedReply::missing(name)),
        }
    }

    /// How many fields were not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// True if no field is left: at the beginning, if there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.to_owned().into())
    }

    #[test]
    fn fields_come_from_every_form_of_a_hash_in_any_order() {
        let flat = Value::Array(vec![bulk("name"), bulk("Ada"), bulk("age"), bulk("36")]);
        let map = Value::Map(vec![(bulk("name"), bulk("Ada")), (bulk("age"), bulk("36"))]);
        for reply in [flat, map] {
            let mut fields = reply.into_fields().expect("a hash");
            assert_eq!((fields.len(), fields.take::<u8>("age")), (2, Ok(36)));
            assert_eq!(fields.take::<String>("name").as_deref(), Ok("Ada"));
            assert!(fields.is_empty() && fields.take::<Option<String>>("name") == Ok(None));
        }
        assert!(Value::Array(Vec::new()).into_fields().expect("no key").is_empty());
        let error = bulk("x").into_fields().expect_err("no hash").to_string();
        assert_eq!(error, "expected keys and values, got a string of 1 bytes");
    }

    #[test]
    fn errors_name_the_field() {
        let mut fields = Value::Map(vec![(bulk("age"), bulk("old"))]).into_fields().expect("a hash");
        let error = fields.take::<u8>("age").expect_err("no number");
        assert_eq!(
            error.to_string(),
            "\"age\" of the reply: expected an unsigned integer of 8 bits, got a string of 3 bytes"
        );
        assert_eq!(error.members(), [0]);
        let mut error = fields.take::<u8>("age").expect_err("taken").in_reply_to("HGETALL");
        let missing = "expected a value, got nothing; ask for an Option where a value may be missing";
        assert_eq!(error.to_string(), format!("HGETALL: \"age\" of the reply: {missing}"));
        assert_eq!((error.take_outermost(), error.members()), (None, vec![]));
    }
}
