package hessian

import (
	"math"
	"testing"
)

func TestNumberRoundTrip(t *testing.T) {
	var values []int64
	for _, edge := range []int64{0, -0x10, 0x2f, -0x08, 0x0f, -0x800, 0x7ff, -0x40000, 0x3ffff, math.MinInt32, math.MaxInt32} {
		values = append(values, edge-1, edge, edge+1)
	}
	values = append(values, math.MinInt64, math.MaxInt64)
	for _, v := range values {
		d := newDecoder(Final, AppendLong(nil, v))
		if got, err := d.Long(); got != v || err != nil || d.Kind() != End {
			t.Errorf("AppendLong(%d) reads as %d, %v; want the same number", v, got, err)
		}
		if v != int64(int32(v)) {
			continue
		}
		d.Reset(AppendInt(nil, int32(v)))
		if got, err := d.Int(); got != int32(v) || err != nil || d.Kind() != End {
			t.Errorf("AppendInt(%d) reads as %d, %v; want the same number", v, got, err)
		}
	}
}

func TestAppendKeepsPrefix(t *testing.T) {
	b := []byte("before ")
	b = AppendNull(b)
	b = AppendBool(b, true)
	b = AppendBool(b, false)
	b = AppendInt(b, 1)
	b = AppendLong(b, 1)
	b = AppendMapStart(b)
	b = AppendString(b, "k")
	b = AppendString(b, "é")
	b = AppendMapEnd(b)
	if got, want := string(b), "before NTF\x91\xe1H\x01k\x01éZ"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestThrowable compares the output with bytes that other implementations have read. hessian-lite
// 3.2.13, on Java 17 with java.lang opened, reads exceptions of these classes with the message, no
// cause and an empty stack trace; getCode returns 4 for the second, and addSuppressed and
// printStackTrace work. dubbo-go-hessian2 1.12.5 reads the first as the error of that name, the
// second as a map.
func TestThrowable(t *testing.T) {
	const trace = "\x70\x1c[java.lang.StackTraceElement"
	for _, c := range []struct {
		v    Throwable
		want string
	}{
		{Throwable{Class: "java.lang.RuntimeException", Message: "no healthy host"},
			"C\x1ajava.lang.RuntimeException\x92\x0ddetailMessage\x0astackTrace\x60\x0fno healthy host" + trace},
		{Throwable{Class: "org.apache.dubbo.rpc.RpcException", Message: "no healthy host", Code: 4},
			"C\x30\x21org.apache.dubbo.rpc.RpcException\x93\x0ddetailMessage\x0astackTrace\x04code\x60\x0fno healthy host" + trace + "\x94"},
	} {
		got := string(AppendThrowable(nil, c.v))
		if got != c.want {
			t.Errorf("%+v is written as\n%q, want\n%q", c.v, got, c.want)
		}
		if values, err := walk(Final, []byte(got)); values != 1 || err != nil {
			t.Errorf("%+v is written as %d values, %v; want 1", c.v, values, err)
		}
	}
}
