package run

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = errors.New("broken")

// untilCanceled returns a task that runs until its context ends, and then takes a while to return.
//
//arch:clock in the bubbles of TestGroup
func untilCanceled(name string, delay time.Duration) Task {
	return Task{name, func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(delay)
		return ctx.Err()
	}}
}

// failAfter returns a task that fails after delay.
//
//arch:clock in the bubbles of TestGroup
func failAfter(delay time.Duration) Task {
	return Task{"failing", func(context.Context) error {
		time.Sleep(delay)
		return errBroken
	}}
}

// returnAfter returns a task that succeeds after delay.
//
//arch:clock in the bubbles of TestGroup
func returnAfter(delay time.Duration) Task {
	return Task{"done", func(context.Context) error {
		time.Sleep(delay)
		return nil
	}}
}

func TestGroup(t *testing.T) {
	for _, c := range []struct {
		name    string
		tasks   []Task
		grace   time.Duration
		ctxLife time.Duration // the context ends after this time; 0: never
		want    string        // error of Group; "": none
		elapsed time.Duration
	}{
		{name: "ends immediately without tasks"},
		{name: "ends when all tasks are done", tasks: []Task{returnAfter(time.Second), returnAfter(2 * time.Second)}, elapsed: 2 * time.Second},
		{name: "continues when one task is done", tasks: []Task{returnAfter(time.Second), failAfter(time.Minute)}, want: "failing: broken", elapsed: time.Minute},
		{name: "waits for the other tasks after an error", tasks: []Task{failAfter(time.Second), untilCanceled("a", 2*time.Second)},
			grace: time.Minute, want: "failing: broken", elapsed: 3 * time.Second},
		{name: "returns the first of two errors", tasks: []Task{failAfter(2 * time.Second), {"early", func(context.Context) error { return os.ErrExist }}},
			want: "early: file already exists", elapsed: 2 * time.Second},
		{name: "returns nil when its context ends", tasks: []Task{untilCanceled("a", time.Second)},
			ctxLife: time.Minute, elapsed: time.Minute + time.Second},
		{name: "returns after grace if a task does not end", tasks: []Task{failAfter(time.Second), untilCanceled("slow", time.Hour), untilCanceled("quick", time.Second)},
			grace: 10 * time.Second, want: "failing: broken\ntasks did not end in time: slow", elapsed: 11 * time.Second},
		{name: "returns after grace if the context ended", tasks: []Task{untilCanceled("slow", time.Hour)},
			ctxLife: time.Second, grace: time.Second, want: "tasks did not end in time: slow", elapsed: 2 * time.Second},
		{name: "waits without a limit if grace is 0", tasks: []Task{failAfter(0), untilCanceled("slow", time.Hour)}, want: "failing: broken", elapsed: time.Hour},
		{name: "reports an error after the context ended", tasks: []Task{{"closing", func(ctx context.Context) error { <-ctx.Done(); return errBroken }}},
			ctxLife: time.Second, want: "closing: broken", elapsed: time.Second},
		{name: "ends without an error on ErrDone", tasks: []Task{{"ending", func(context.Context) error { return ErrDone }}, untilCanceled("a", time.Second)},
			elapsed: time.Second},
		{name: "reports an error after ErrDone", tasks: []Task{{"ending", func(context.Context) error { return ErrDone }},
			{"closing", func(ctx context.Context) error { <-ctx.Done(); return errBroken }}}, want: "closing: broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ctxLife > 0 {
					time.AfterFunc(c.ctxLife, cancel)
				}
				start := time.Now()
				err := Group(ctx, c.grace, c.tasks...)
				if got := message(err); got != c.want {
					t.Errorf("error %q, want %q", got, c.want)
				}
				if elapsed := time.Since(start); elapsed != c.elapsed {
					t.Errorf("elapsed time %v, want %v", elapsed, c.elapsed)
				}
				time.Sleep(2 * time.Hour) // lets the tasks that outlived grace end, as the bubble requires
			})
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
