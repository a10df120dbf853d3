package workload

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxMetadata is the maximum length of a FieldMetadata value in bytes.
const MaxMetadata = 4096

// Keys of the structure in FieldMetadata, and of its labels.
const (
	keyCluster   = "CLUSTER_ID"
	keyLabels    = "LABELS"
	keyInstance  = "NAME"
	keyNamespace = "NAMESPACE"
	keyOwner     = "OWNER"
	keyName      = "WORKLOAD_NAME"

	labelApp      = "app"
	labelService  = "service.istio.io/canonical-name"
	labelRevision = "service.istio.io/canonical-revision"
	labelVersion  = "version"
)

// Field numbers of google.protobuf.Struct, of its map entries, and of google.protobuf.Value.
const (
	structFields = 1
	entryKey     = 1
	entryValue   = 2
	valueString  = 3
	valueStruct  = 5
)

var (
	errTooLong   = errors.New("workload: metadata is too long")
	errMalformed = errors.New("workload: metadata is malformed")
)

// ParseMetadata parses a value of FieldMetadata: a google.protobuf.Struct in base64, with or
// without padding. It skips unknown keys and invalid values: values that are not UTF-8, are longer
// than 256 bytes or contain a semicolon. w does not alias value.
func ParseMetadata(value string) (w Workload, err error) {
	if len(value) > MaxMetadata {
		return w, errTooLong
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
	if err != nil {
		return w, fmt.Errorf("workload: %w", err)
	}
	err = eachEntry(b, func(key string, value []byte) error {
		if key == keyLabels {
			return eachValue(value, valueStruct, func(labels []byte) error {
				return eachEntry(labels, func(label string, value []byte) error { return w.setField(label, value) })
			})
		}
		if strings.HasPrefix(key, "service.") || key == labelApp || key == labelVersion {
			return nil // a label, which belongs in LABELS
		}
		return w.setField(key, value)
	})
	if err != nil {
		return Workload{}, err
	}
	return w, nil
}

// field returns the field of w for a key, or nil if there is none.
func (w *Workload) field(key string) *string {
	switch key {
	case keyCluster:
		return &w.Cluster
	case keyInstance:
		return &w.Instance
	case keyNamespace:
		return &w.Namespace
	case keyOwner:
		return &w.Owner
	case keyName:
		return &w.Name
	case labelApp:
		return &w.App
	case labelService:
		return &w.Service
	case labelRevision:
		return &w.Revision
	case labelVersion:
		return &w.Version
	}
	return nil
}

// setField sets the field for a key from a Value, if w has the field and the Value is a string.
func (w *Workload) setField(key string, value []byte) error {
	field := w.field(key)
	return eachValue(value, valueString, func(text []byte) error {
		if field != nil {
			*field = validPart(string(text))
		}
		return nil
	})
}

// eachEntry calls yield with the entries of a Struct. The value of an entry without a value is
// empty. Of duplicate fields, the last one applies.
func eachEntry(b []byte, yield func(key string, value []byte) error) error {
	return eachValue(b, structFields, func(entry []byte) error {
		var key string
		var value []byte
		err := eachField(entry, func(number protowire.Number, content []byte) error {
			if number == entryKey {
				key = string(content)
			}
			if number == entryValue {
				value = content
			}
			return nil
		})
		if err != nil {
			return err
		}
		return yield(key, value)
	})
}

// eachValue calls yield with the content of each field of a message with the given number.
func eachValue(b []byte, number protowire.Number, yield func(content []byte) error) error {
	return eachField(b, func(n protowire.Number, content []byte) error {
		if n != number {
			return nil
		}
		return yield(content)
	})
}

// eachField calls yield with each length-delimited field of a message, and skips other fields.
func eachField(b []byte, yield func(number protowire.Number, content []byte) error) error {
	for len(b) > 0 {
		number, wireType, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		b = b[n:]
		if wireType != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wireType, b); n < 0 {
				return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		content, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		if err := yield(number, content); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Metadata returns w in the format that ParseMetadata reads. Equal workloads have equal texts.
// Fields that are "" are omitted.
func (w *Workload) Metadata() string {
	var labels, fields []byte
	for _, key := range []string{labelApp, labelService, labelRevision, labelVersion} {
		labels = appendText(labels, key, *w.field(key))
	}
	for _, key := range []string{keyCluster, keyLabels, keyInstance, keyNamespace, keyOwner, keyName} {
		if key == keyLabels {
			fields = appendEntry(fields, keyLabels, valueStruct, labels)
			continue
		}
		fields = appendText(fields, key, *w.field(key))
	}
	return base64.StdEncoding.EncodeToString(fields)
}

// appendText appends a Struct entry with a string value, unless the string is empty.
func appendText(dst []byte, key, text string) []byte {
	if text == "" {
		return dst
	}
	return appendEntry(dst, key, valueString, []byte(text))
}

// appendEntry appends a Struct entry whose Value contains content in the field with the given
// number.
func appendEntry(dst []byte, key string, number protowire.Number, content []byte) []byte {
	value := protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	entry := protowire.AppendString(protowire.AppendTag(nil, entryKey, protowire.BytesType), key)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, entryValue, protowire.BytesType), value)
	return protowire.AppendBytes(protowire.AppendTag(dst, structFields, protowire.BytesType), entry)
}
