package dubbo

import (
	"fmt"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// limits bound what a body may hold. Java's reader recurses: what nests deeper
// than this overflows its stack.
//
//nolint:gochecknoglobals // a constant
var limits = hessian.Limits{Depth: 1 << 16, Classes: 1 << 16}

const (
	// maxAttachments is how many attachments a message may have: they become
	// fields, which are searched one after the other.
	maxAttachments = 1024
	// maxFields is how many fields a message may be sent with.
	maxFields = 2 * maxAttachments
)

// beginAttachments consumes the head of the attachments, which are a map, null or
// not there at all.
func beginAttachments(d *hessian.Decoder) (head []byte, err error) {
	if d.Kind() == hessian.End {
		return nil, nil
	}
	if head, err = d.Map(); err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	return head, nil
}

// nextAttachment consumes attachment number n, from 0, into e, or reports that
// there is none.
func nextAttachment(d *hessian.Decoder, e *hessian.Entry, n int) (more bool, err error) {
	if more, err = d.Entry(e); err != nil {
		return false, fmt.Errorf("attachments: %w", err)
	}
	if more && n == maxAttachments {
		return false, fmt.Errorf("attachments: there are more than %d", maxAttachments)
	}
	return more, nil
}

// isField reports whether an attachment can be a field: its key is a string and
// its value has a text, or is null, which counts as an empty text.
func isField(e *hessian.Entry) bool {
	return e.Key != nil && (e.Value != nil || e.Kind == hessian.Null)
}

// rewriter writes attachments as the fields of a header now say. What they say
// as before, and what is no field, stays byte for byte and in its place; what is
// changed becomes a string; what is new comes last.
//
// References in the attachments keep their meaning: fields have strings and
// scalars for values, which nothing refers to (see hessian.Entry).
type rewriter struct {
	body   []byte           // which has the attachments
	header *protocol.Header // of at most maxFields
	left   int64            // what timeouts are lowered to, in ms; 0: they stay
	next   int              // the field that the next attachment likely is
	used   [maxFields / 64]uint64
}

// use marks the field of index i as one that an attachment has.
func (w *rewriter) use(i int) { w.used[i/64] |= 1 << (i % 64) }

func (w *rewriter) isUsed(i int) bool { return w.used[i/64]&(1<<(i%64)) != 0 }

// field returns the field that an attachment became, and uses it; nil if it was
// removed.
func (w *rewriter) field(e *hessian.Entry) *protocol.Field {
	n := w.header.Len()
	for k := range n {
		i := w.next + k
		if i >= n {
			i -= n
		}
		if f := w.header.At(i); f.Name == view(e.Key) && !w.isUsed(i) {
			w.use(i)
			w.next = i + 1
			return f
		}
	}
	return nil
}

// begin appends the head of the attachments that d is at.
func (w *rewriter) begin(dst []byte, d *hessian.Decoder) ([]byte, error) {
	head, err := beginAttachments(d)
	if err != nil || len(head) == 0 {
		return hessian.AppendMapStart(dst), err
	}
	return append(dst, head...), nil
}

// appendAttachments appends the attachments that d is at, but their end.
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

// end appends the fields that no attachment has, and what is behind the
// attachments that d has consumed.
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

// appendEntry appends an attachment as its field says.
func (w *rewriter) appendEntry(dst []byte, e *hessian.Entry) []byte {
	if !isField(e) {
		return w.keep(dst, e)
	}
	f := w.field(e)
	if f == nil {
		return dst
	}
	return w.set(dst, e, f.Value)
}

// keep appends an attachment as it is.
func (w *rewriter) keep(dst []byte, e *hessian.Entry) []byte {
	return append(dst, w.body[e.Start:e.End]...)
}

// set appends an attachment with a value, which may be its own.
func (w *rewriter) set(dst []byte, e *hessian.Entry, value string) []byte {
	at := len(dst) + e.Middle - e.Start
	if value == view(e.Value) {
		dst = w.keep(dst, e)
	} else {
		dst = append(dst, w.body[e.Start:e.Middle]...)
		dst = hessian.AppendString(dst, value)
	}
	w.lower(view(e.Key), dst[at:])
	return dst
}

// add appends a new attachment.
func (w *rewriter) add(dst []byte, name, value string) []byte {
	dst = hessian.AppendString(dst, name)
	at := len(dst)
	dst = hessian.AppendString(dst, value)
	w.lower(name, dst[at:])
	return dst
}

// lower lowers an attachment that is a timeout; written is its value.
func (w *rewriter) lower(name string, written []byte) {
	if w.left > 0 && isTimeout(name) {
		lowerTimeout(written, w.left)
	}
}
