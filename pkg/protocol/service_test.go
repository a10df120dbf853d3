package protocol

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// testService is a service that records when Start and Finish run.
type testService struct {
	name     string
	next     Service
	log      *[]string
	startErr error        // result of Start if next is nil
	panicsIn string       // "start" or "finish"; "" for neither
	blocking *testService // Finish runs it with RunBlocking
}

func (s *testService) Start(ctx context.Context, x *Exchange) error {
	*s.log = append(*s.log, "start "+s.name)
	if s.panicsIn == "start" {
		panic(s.name)
	}
	x.PushFinisher(s)
	if s.next == nil {
		return s.startErr
	}
	return s.next.Start(ctx, x)
}

// onBlockingGoroutine is a BlockingService that serves with a testService.
type onBlockingGoroutine struct{ *testService }

func (b onBlockingGoroutine) Serve(ctx context.Context, x *Exchange) error {
	return x.Serve(ctx, b.testService)
}

func (s *testService) Finish(ctx context.Context, x *Exchange, err error) error {
	entry := "finish " + s.name
	if err != nil {
		entry += ": " + err.Error()
	}
	*s.log = append(*s.log, entry)
	if s.panicsIn == "finish" {
		panic(s.name)
	}
	if s.blocking != nil {
		return x.RunBlocking(ctx, onBlockingGoroutine{s.blocking})
	}
	return err
}

// fakeRunner is a Downstream that runs blocking services later.
type fakeRunner struct{ pending BlockingService }

func (*fakeRunner) SendInterim(int, *Header) error    { return nil }
func (*fakeRunner) OnDisconnect(func()) (stop func()) { return func() {} }
func (f *fakeRunner) RunBlocking(_ context.Context, s BlockingService) error {
	f.pending = s
	return ErrPending
}

func TestFinishersRunInNestedOrder(t *testing.T) {
	var log []string
	fault := errors.New("fault")
	for _, tt := range []struct {
		name  string
		chain *testService
		want  []string
		err   string
	}{
		{"response", &testService{name: "a", log: &log, next: &testService{name: "b", log: &log}},
			[]string{"start a", "start b", "finish b", "finish a"}, ""},
		{"error", &testService{name: "a", log: &log, next: &testService{name: "b", log: &log, startErr: fault}},
			[]string{"start a", "start b", "finish b: fault", "finish a: fault"}, "fault"},
		{"panic in Start", &testService{name: "a", log: &log, next: &testService{name: "b", log: &log, panicsIn: "start"}},
			[]string{"start a", "start b", "finish a: internal error: panic: b"}, "internal error: panic: b"},
		{"panic in Finish", &testService{name: "a", log: &log, next: &testService{name: "b", log: &log, panicsIn: "finish"}},
			[]string{"start a", "start b", "finish b", "finish a: internal error: panic: b"}, "internal error: panic: b"},
		{"panic in the last Finish", &testService{name: "a", log: &log, panicsIn: "finish"},
			[]string{"start a", "finish a"}, "internal error: panic: a"},
		{"RunBlocking in Finish", &testService{name: "a", log: &log, next: &testService{name: "b", log: &log, blocking: &testService{name: "c", log: &log}}},
			[]string{"start a", "start b", "finish b", "start c", "finish c", "finish a"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, serve := range []func(x *Exchange) error{
				func(x *Exchange) error { return x.Serve(t.Context(), tt.chain) },
				func(x *Exchange) error { return x.Start(t.Context(), tt.chain) },
			} {
				log = nil
				var x Exchange
				err := serve(&x)
				if got := errorText(err); got != tt.err {
					t.Errorf("error %q, want %q", got, tt.err)
				}
				if !slices.Equal(log, tt.want) {
					t.Errorf("ran %q, want %q", log, tt.want)
				}
				if len(x.finishers) != 0 {
					t.Errorf("%d finishers were not run, want 0", len(x.finishers))
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestResumeContinuesPendingExchange(t *testing.T) {
	var log []string
	blocking := &testService{name: "again", log: &log}
	chain := &testService{name: "a", log: &log, next: &testService{name: "b", log: &log, blocking: blocking, next: &testService{name: "c", log: &log, startErr: ErrPending}}}
	downstream := new(fakeRunner)
	x := Exchange{Downstream: downstream}
	if err := x.Start(t.Context(), chain); err != ErrPending {
		t.Fatalf("Start: %v, want ErrPending", err)
	}
	if err := x.Resume(t.Context(), errors.New("lost")); err != ErrPending {
		t.Fatalf("Resume: %v, want ErrPending, because b calls RunBlocking", err)
	}
	if downstream.pending != (onBlockingGoroutine{blocking}) {
		t.Fatalf("RunBlocking got %v, want the blocking service of b", downstream.pending)
	}
	if err := x.Resume(t.Context(), downstream.pending.Serve(t.Context(), &x)); err != nil {
		t.Fatalf("Resume: %v", err)
	}
	want := []string{"start a", "start b", "start c", "finish c: lost", "finish b: lost", "start again", "finish again", "finish a"}
	if !slices.Equal(log, want) {
		t.Errorf("ran %q, want %q", log, want)
	}
}

// TestServeKeepsOuterFinishers verifies that Serve runs only the finishers that were pushed after
// it was called.
func TestServeKeepsOuterFinishers(t *testing.T) {
	var log []string
	nested := BlockingFunc(func(ctx context.Context, x *Exchange) error {
		err := x.Serve(ctx, &testService{name: "inner", log: &log})
		log = append(log, "nested continues")
		return err
	})
	chain := &testService{name: "outer", log: &log, next: nested}
	if err := new(Exchange).Serve(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	want := []string{"start outer", "start inner", "finish inner", "nested continues", "finish outer"}
	if !slices.Equal(log, want) {
		t.Errorf("ran %q, want %q", log, want)
	}
}

func TestPanicKeepsStack(t *testing.T) {
	var log []string
	err := new(Exchange).Serve(t.Context(), &testService{name: "a", log: &log, panicsIn: "start"})
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "a" || len(p.Stack) == 0 {
		t.Errorf("error %#v, want a PanicError with value and stack", err)
	}
	if ReasonOf(err) != Internal {
		t.Errorf("reason %v, want Internal", ReasonOf(err))
	}
}

func TestEffectiveDeadline(t *testing.T) {
	var x Exchange
	if !x.EffectiveDeadline().IsZero() {
		t.Error("EffectiveDeadline without deadlines is not zero")
	}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, tt := range []struct{ exchange, try, want int }{{0, 1, 1}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		deadlines := []Exchange{{}, {Deadline: early}, {Deadline: late}}
		x.Deadline, x.PerTryDeadline = deadlines[tt.exchange].Deadline, deadlines[tt.try].Deadline
		if got := x.EffectiveDeadline(); !got.Equal(deadlines[tt.want].Deadline) {
			t.Errorf("EffectiveDeadline with deadlines %v and %v = %v, want %v", x.Deadline, x.PerTryDeadline, got, deadlines[tt.want].Deadline)
		}
	}
}
