package protocol

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// step is an asynchronous service that records when Start and Finish run.
type step struct {
	name   string
	next   AsyncService
	log    *[]string
	starts error // result of Start if next is nil
	panics string
	forks  Service // Finish passes it to RunBlocking
}

func (s *step) Serve(ctx context.Context, x *Exchange) error { return ServeSync(ctx, s, x) }

func (s *step) Start(ctx context.Context, x *Exchange) error {
	*s.log = append(*s.log, "start "+s.name)
	if s.panics == "start" {
		panic(s.name)
	}
	x.PushFinisher(s)
	if s.next == nil {
		return s.starts
	}
	return s.next.Start(ctx, x)
}

func (s *step) Finish(ctx context.Context, x *Exchange, err error) error {
	word := "finish " + s.name
	if err != nil {
		word += ": " + err.Error()
	}
	*s.log = append(*s.log, word)
	if s.panics == "finish" {
		panic(s.name)
	}
	if s.forks != nil {
		return x.RunBlocking(ctx, s.forks)
	}
	return err
}

// forker is a Caller that runs blocking services later.
type forker struct{ forked Service }

func (*forker) SendInterim(int, *Header) error                   { return nil }
func (*forker) OnDisconnect(func()) (stop func())                { return func() {} }
func (f *forker) RunBlocking(_ context.Context, s Service) error { f.forked = s; return ErrPending }

func TestHalvesRunInTheOrderOfNestedServices(t *testing.T) {
	var log []string
	fault := errors.New("fault")
	for _, c := range []struct {
		name  string
		chain *step
		want  []string
		err   string
	}{
		{"an answer", &step{name: "a", log: &log, next: &step{name: "b", log: &log}},
			[]string{"start a", "start b", "finish b", "finish a"}, ""},
		{"an error", &step{name: "a", log: &log, next: &step{name: "b", log: &log, starts: fault}},
			[]string{"start a", "start b", "finish b: fault", "finish a: fault"}, "fault"},
		{"a panic before", &step{name: "a", log: &log, next: &step{name: "b", log: &log, panics: "start"}},
			[]string{"start a", "start b", "finish a: internal error: panic: b"}, "internal error: panic: b"},
		{"a panic after", &step{name: "a", log: &log, next: &step{name: "b", log: &log, panics: "finish"}},
			[]string{"start a", "start b", "finish b", "finish a: internal error: panic: b"}, "internal error: panic: b"},
		{"a panic at last", &step{name: "a", log: &log, panics: "finish"},
			[]string{"start a", "finish a"}, "internal error: panic: a"},
		{"a fork on a stack that may wait", &step{name: "a", log: &log, next: &step{name: "b", log: &log, forks: &step{name: "c", log: &log}}},
			[]string{"start a", "start b", "finish b", "start c", "finish c", "finish a"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, serve := range []func(x *Exchange) error{
				func(x *Exchange) error { return ServeSync(t.Context(), c.chain, x) },
				func(x *Exchange) error { return x.StartAsync(t.Context(), c.chain) },
			} {
				log = nil
				var x Exchange
				err := serve(&x)
				if got := text(err); got != c.err {
					t.Errorf("error %q, want %q", got, c.err)
				}
				if !slices.Equal(log, c.want) {
					t.Errorf("ran %q, want %q", log, c.want)
				}
				if len(x.finishers) != 0 {
					t.Errorf("%d finishers are left", len(x.finishers))
				}
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAPendingExchangeGoesOnWhereItStopped(t *testing.T) {
	var log []string
	again := &step{name: "again", log: &log}
	chain := &step{name: "a", log: &log, next: &step{name: "b", log: &log, forks: again, next: &step{name: "c", log: &log, starts: ErrPending}}}
	caller := new(forker)
	x := Exchange{Caller: caller}
	if err := x.StartAsync(t.Context(), chain); err != ErrPending {
		t.Fatalf("Begin: %v, want ErrPending", err)
	}
	if err := x.Resume(t.Context(), errors.New("lost")); err != ErrPending {
		t.Fatalf("Resume: %v, want ErrPending: b forks", err)
	}
	if caller.forked != Service(again) {
		t.Fatalf("forked %v, want b's", caller.forked)
	}
	if err := x.Resume(t.Context(), caller.forked.Serve(t.Context(), &x)); err != nil {
		t.Fatalf("Resume: %v", err)
	}
	want := []string{"start a", "start b", "start c", "finish c: lost", "finish b: lost", "start again", "finish again", "finish a"}
	if !slices.Equal(log, want) {
		t.Errorf("ran %q, want %q", log, want)
	}
}

func TestRunLeavesTheFinishersOfOthersAlone(t *testing.T) {
	var log []string
	whole := ServiceFunc(func(ctx context.Context, x *Exchange) error {
		err := ServeSync(ctx, &step{name: "inner", log: &log}, x)
		log = append(log, "whole goes on")
		return err
	})
	chain := &step{name: "outer", log: &log, next: Async(whole)}
	if err := ServeSync(t.Context(), chain, new(Exchange)); err != nil {
		t.Fatal(err)
	}
	want := []string{"start outer", "start inner", "finish inner", "whole goes on", "finish outer"}
	if !slices.Equal(log, want) {
		t.Errorf("ran %q, want %q", log, want)
	}
}

func TestAPanicKeepsItsStack(t *testing.T) {
	var log []string
	err := ServeSync(t.Context(), &step{name: "a", log: &log, panics: "start"}, new(Exchange))
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "a" || len(p.Stack) == 0 {
		t.Errorf("error %#v, want a Panic with value and stack", err)
	}
	if ReasonOf(err) != Internal {
		t.Errorf("reason %v, want Internal", ReasonOf(err))
	}
}

func TestUntilIsTheNearerDeadline(t *testing.T) {
	var x Exchange
	if !x.EffectiveDeadline().IsZero() {
		t.Error("without deadlines there is an end")
	}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ whole, try, want int }{{0, 1, 1}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		at := []Exchange{{}, {Deadline: early}, {Deadline: late}}
		x.Deadline, x.PerTryDeadline = at[c.whole].Deadline, at[c.try].Deadline
		if got := x.EffectiveDeadline(); !got.Equal(at[c.want].Deadline) {
			t.Errorf("Until() of %v and %v = %v", x.Deadline, x.PerTryDeadline, got)
		}
	}
}
