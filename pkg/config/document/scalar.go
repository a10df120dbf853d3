package document

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decodeScalar fills a string, boolean, number or duration.
func (d *Decoder) decodeScalar(n Node, v reflect.Value, k *Key) {
	if k.RefersTo != "" {
		d.reportReference(n, n.Text(), k)
	}
	var problem string
	switch kind := n.Kind(); {
	case kind == Object || kind == Array:
		problem = k.expected(v.Type())
	case kind != String:
		problem = k.setLiteral(v, kind, n.Text())
	case v.Kind() == reflect.String || v.Type() == durationType || k.acceptsByteSizes || k.AllowIntegerString || len(k.Enum) > 0 ||
		n.entry().flags&flagExpanded != 0:
		problem = k.setText(v, n.Text())
	default:
		problem = k.expected(v.Type())
	}
	if problem == "" {
		return
	}
	if len(k.Enum) > 0 && n.Kind() == String && v.Kind() == reflect.String {
		d.report.addAt(n, n.Position(), Diagnostic{
			Found: n.Describe(), Expected: problem, Suggestion: Suggest(n.Text(), k.enumNames()),
		})
		return
	}
	d.report.Expect(n, problem)
}

// setLiteral fills v from a JSON number or boolean. It returns a description of the expected value,
// or "" on success.
func (k *Key) setLiteral(v reflect.Value, kind Kind, text string) string {
	isBool := v.Kind() == reflect.Bool
	isNumeric := isInteger(v.Type()) || v.Kind() == reflect.Float32 || v.Kind() == reflect.Float64
	isZeroDuration := v.Type() == durationType && text == "0" // without a unit, as time.ParseDuration accepts it
	if isBool && kind == Bool || (isNumeric || isZeroDuration) && kind == Number {
		return k.setText(v, text)
	}
	return k.expected(v.Type())
}

// setText fills v, which may be a pointer, from text: a default, a string, or a literal. It returns
// a description of the expected value, or "" on success.
func (k *Key) setText(v reflect.Value, text string) string {
	if v.Kind() == reflect.Pointer {
		target := reflect.New(v.Type().Elem())
		problem := k.setText(target.Elem(), text)
		v.Set(target)
		return problem
	}
	ok := false
	switch t := v.Type(); {
	case t == durationType:
		ok = k.setDuration(v, text)
	case t.Kind() == reflect.String:
		ok = k.setString(v, text)
	case t.Kind() == reflect.Bool:
		ok = text == "true" || text == "false"
		v.SetBool(text == "true")
	case isInteger(t):
		ok = k.setInteger(v, text)
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		ok = err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && k.inRange(f)
		v.SetFloat(f)
	}
	if !ok {
		return k.expected(v.Type())
	}
	return ""
}

func (k *Key) setString(v reflect.Value, text string) bool {
	for _, ev := range k.Enum {
		if strings.EqualFold(ev.Name, text) {
			v.SetString(ev.Name)
			return true
		}
	}
	if len(k.Enum) > 0 {
		return false
	}
	v.SetString(text)
	return true
}

func (k *Key) setDuration(v reflect.Value, text string) bool {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 && !k.minBound.set || !k.inRange(float64(d)) {
		return false
	}
	v.SetInt(int64(d))
	return true
}

func (k *Key) setInteger(v reflect.Value, text string) bool {
	for _, ev := range k.Enum {
		if strings.EqualFold(ev.Name, text) {
			return setInt(v, ev.Value)
		}
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil && k.acceptsByteSizes {
		var ok bool
		if i, ok = parseBytes(text); !ok {
			return false
		}
	} else if err != nil {
		return false
	}
	return k.allowsInteger(i) && setInt(v, i)
}

func setInt(v reflect.Value, i int64) bool {
	if v.CanInt() {
		if v.OverflowInt(i) {
			return false
		}
		v.SetInt(i)
		return true
	}
	if i < 0 || v.OverflowUint(uint64(i)) {
		return false
	}
	v.SetUint(uint64(i))
	return true
}

func (k *Key) allowsInteger(i int64) bool {
	return k.inRange(float64(i)) && (k.OneOf == nil || slices.Contains(k.OneOf, i))
}

func (k *Key) inRange(x float64) bool {
	return (!k.minBound.set || x >= k.minBound.value) && (!k.maxBound.set || x <= k.maxBound.value)
}

// parseBytes parses a size with a unit, in any case: B; K, KB or KiB; M, MB or MiB; G, GB or GiB.
// K, M and G are powers of 1024.
func parseBytes(text string) (int64, bool) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := strings.ToLower(text[len(digits):])
	shift := map[string]uint{"b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30}
	bits, ok := shift[unit]
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || !ok || n < 0 || n > math.MaxInt64>>bits {
		return 0, false
	}
	return n << bits, true
}

// Expected describes the values that the key accepts.
func (k *Key) Expected() string { return k.expected(k.Type) }

// expected describes a value of type t under the key; t is the type of the key or of its elements.
func (k *Key) expected(t reflect.Type) string {
	t = deref(t)
	names := make([]string, len(k.Enum))
	for i, ev := range k.Enum {
		names[i] = strconv.Quote(ev.Name)
	}
	switch {
	case t == nodeType:
		kinds := make([]string, len(k.Accept))
		for i, kind := range k.Accept {
			kinds[i] = kind.String()
		}
		return joinOr(kinds)
	case t == durationType:
		return `a duration like "10s"` + k.bounds()
	case t.Kind() == reflect.String && len(names) > 0:
		return joinOr(names)
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case k.acceptsByteSizes:
		return joinOr(append([]string{`a number of bytes like 65536 or "64KB"` + k.bounds()}, names...))
	case k.OneOf != nil:
		var numbers []string
		for _, n := range k.OneOf {
			numbers = append(numbers, strconv.FormatInt(n, 10))
		}
		return joinOr(append(numbers, names...))
	case isInteger(t):
		return joinOr(append([]string{"an integer" + k.integerBounds(t)}, names...))
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "a number" + k.bounds()
	}
	if _, ok := elementOf(t); ok {
		return "a list"
	}
	return "an object"
}

// integerBounds describes the bounds of the tags. For unsigned integers without bounds, it uses 0
// and, up to 16 bits, the maximum of the type.
func (k *Key) integerBounds(t reflect.Type) string {
	bounded := *k
	if !bounded.minBound.set && reflect.Zero(t).CanUint() {
		bounded.Min, bounded.minBound.set = "0", true
	}
	if !bounded.maxBound.set && reflect.Zero(t).CanUint() && t.Size() <= 2 {
		bounded.Max, bounded.maxBound.set = strconv.Itoa(1<<(8*t.Size())-1), true
	}
	return bounded.bounds()
}

func (k *Key) bounds() string {
	switch {
	case k.minBound.set && k.maxBound.set:
		return fmt.Sprintf(" from %s to %s", k.Min, k.Max)
	case k.minBound.set:
		return " of at least " + k.Min
	case k.maxBound.set:
		return " of at most " + k.Max
	}
	return ""
}

// ignoredSuffix returns a colon and the reason why a key has no effect, or "" if the tag gives
// none.
func (k *Key) ignoredSuffix() string {
	if k.IgnoredReason == "" || k.IgnoredReason == "true" {
		return ""
	}
	return ": " + k.IgnoredReason
}

func (k *Key) enumNames() []string {
	list := make([]string, len(k.Enum))
	for i, ev := range k.Enum {
		list[i] = ev.Name
	}
	return list
}

// joinOr joins list with commas and a final "or".
func joinOr(list []string) string {
	switch len(list) {
	case 0:
		return "a value"
	case 1:
		return list[0]
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}
