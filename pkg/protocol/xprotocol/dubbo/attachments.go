package dubbo

import (
	"fmt"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// limits bounds the nesting and the class definitions of a body. Java's reader is recursive: deeper
// values overflow its stack.
//
//nolint:gochecknoglobals // a constant
var limits = hessian.Limits{Depth: 1 << 16, Classes: 1 << 16}

const (
	// maxAttachments is the maximum number of attachments of a message. Attachments become fields,
	// which are searched linearly.
	maxAttachments = 1024
	// maxFields is the maximum number of fields of a changed message.
	maxFields = 2 * maxAttachments
)

// beginAttachments consumes the head of the attachments, which are a map, null or absent.
func beginAttachments(d *hessian.Decoder) (head []byte, err error) {
	if d.Kind() == hessian.End {
		return nil, nil
	}
	if head, err = d.Map(); err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	return head, nil
}

// nextAttachment consumes attachment n, counted from 0, into e. It returns false if there is none.
func nextAttachment(d *hessian.Decoder, e *hessian.Entry, n int) (more bool, err error) {
	if more, err = d.Entry(e); err != nil {
		return false, fmt.Errorf("attachments: %w", err)
	}
	if more && n == maxAttachments {
		return false, fmt.Errorf("attachments: more than %d", maxAttachments)
	}
	return more, nil
}

// isField reports whether an attachment can be a field: its key is a string, and its value has a
// text or is null, which becomes an empty text.
func isField(e *hessian.Entry) bool {
	return e.Key != nil && (e.Value != nil || e.Kind == hessian.Null)
}

// rewriter writes attachments with the current fields of a header. It copies unchanged fields, and
// attachments that are not fields, byte for byte and in place. A changed value becomes a string;
// new fields come last.
//
// References in the attachments stay valid: the values of fields are strings and scalars, to which
// nothing refers (see hessian.Entry).
type rewriter struct {
	body       []byte           // contains the attachments
	header     *protocol.Header // the current fields; at most maxFields
	maxTimeout int64            // upper bound for timeouts, in ms; 0: none
	next       int              // index of the field at which the search for the next attachment starts
	used       [maxFields / 64]uint64
}

// markUsed marks the field with index i as used by an attachment.
func (w *rewriter) markUsed(i int) { w.used[i/64] |= 1 << (i % 64) }

func (w *rewriter) isUsed(i int) bool { return w.used[i/64]&(1<<(i%64)) != 0 }

// takeField returns the first unused field with the name of an attachment, and marks the field as
// used. It returns nil if the field was removed.
func (w *rewriter) takeField(e *hessian.Entry) *protocol.Field {
	n := w.header.Len()
	for k := range n {
		i := w.next + k
		if i >= n {
			i -= n
		}
		if f := w.header.At(i); f.Name == unsafeString(e.Key) && !w.isUsed(i) {
			w.markUsed(i)
			w.next = i + 1
			return f
		}
	}
	return nil
}

// begin consumes the head of the attachments with d and appends it, or the head of a new map.
func (w *rewriter) begin(dst []byte, d *hessian.Decoder) ([]byte, error) {
	head, err := beginAttachments(d)
	if err != nil || len(head) == 0 {
		return hessian.AppendMapStart(dst), err
	}
	return append(dst, head...), nil
}

// appendAttachments consumes the attachments with d and appends them, without the end of their map.
func (w *rewriter) appendAttachments(dst []byte, d *hessian.Decoder) ([]byte, error) {
	dst, err := w.begin(dst, d)
	if err != nil {
		return dst, err
	}
	var e hessian.Entry
	for n := 0; ; n++ {
		more, err := nextAttachment(d, &e, n)
		if !more || err != nil {
			return dst, err
		}
		dst = w.appendEntry(dst, &e)
	}
}

// end appends the unused fields as new attachments, the end of the map, and the rest of the body
// after the attachments that d has consumed.
func (w *rewriter) end(dst []byte, d *hessian.Decoder) []byte {
	for i := range w.header.Len() {
		if !w.isUsed(i) {
			f := w.header.At(i)
			dst = w.add(dst, f.Name, f.Value)
		}
	}
	dst = hessian.AppendMapEnd(dst)
	return append(dst, w.body[d.Offset():]...)
}

// appendEntry appends attachment e with the current value of its field, and omits e if the field
// was removed. It copies an attachment that is not a field.
func (w *rewriter) appendEntry(dst []byte, e *hessian.Entry) []byte {
	if !isField(e) {
		return w.keep(dst, e)
	}
	f := w.takeField(e)
	if f == nil {
		return dst
	}
	return w.set(dst, e, f.Value)
}

func (w *rewriter) keep(dst []byte, e *hessian.Entry) []byte {
	return append(dst, w.body[e.Start:e.End]...)
}

// set appends the attachment e with a new value, which may equal the old one.
func (w *rewriter) set(dst []byte, e *hessian.Entry, value string) []byte {
	valueStart := len(dst) + e.ValueStart - e.Start
	if value == unsafeString(e.Value) {
		dst = w.keep(dst, e)
	} else {
		dst = append(dst, w.body[e.Start:e.ValueStart]...)
		dst = hessian.AppendString(dst, value)
	}
	w.lowerIfTimeout(unsafeString(e.Key), dst[valueStart:])
	return dst
}

func (w *rewriter) add(dst []byte, name, value string) []byte {
	dst = hessian.AppendString(dst, name)
	valueStart := len(dst)
	dst = hessian.AppendString(dst, value)
	w.lowerIfTimeout(name, dst[valueStart:])
	return dst
}

// lowerIfTimeout lowers the Hessian value of an attachment if the attachment is a timeout.
func (w *rewriter) lowerIfTimeout(name string, value []byte) {
	if w.maxTimeout > 0 && isTimeout(name) {
		lowerTimeout(value, w.maxTimeout)
	}
}
