// Package run provides the run group: tasks that run and end together.
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Task is a function that runs until its context ends.
type Task struct {
	Name string // for errors
	// Run must return soon after ctx ends. An error ends the whole group, unless it is ctx's error
	// after ctx ended. nil means that the task is done; the others continue.
	Run func(ctx context.Context) error
}

// ErrDone is the error that a task returns to end its group successfully.
var ErrDone = errors.New("run: done")

// Group runs each task in its own goroutine until ctx ends, a task returns an error, or all tasks
// return. It then cancels the context of the tasks that still run and waits for them, for at most
// grace after the cancellation; 0 means no limit.
//
// Group returns the first error with the name of its task, or nil if there is none. ErrDone does
// not count, nor does the error of the tasks' context once that context has ended. If tasks did not
// end in time, Group joins an error that names them; their goroutines keep running, and the process
// should exit. Group does not recover panics.
func Group(ctx context.Context, grace time.Duration, tasks ...Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		task int
		err  error
	}
	results := make(chan result, len(tasks)) // buffered, so that tasks that outlive grace do not block
	running := make(map[int]bool, len(tasks))
	for i, t := range tasks {
		running[i] = true
		go func() { results <- result{i, t.Run(ctx)} }()
	}

	var firstErr error
	done := ctx.Done()
	var graceExpired <-chan time.Time // nil: the group is not ending, or grace has no limit
	for len(running) > 0 {
		select {
		case <-done:
			done = nil
			if grace > 0 {
				timer := time.NewTimer(grace)
				defer timer.Stop()
				graceExpired = timer.C
			}
		case r := <-results:
			delete(running, r.task)
			// After ctx has ended, its error is not a failure.
			if errors.Is(r.err, ErrDone) {
				cancel()
			} else if r.err != nil && firstErr == nil && !(ctx.Err() != nil && errors.Is(r.err, ctx.Err())) {
				firstErr = fmt.Errorf("%s: %w", tasks[r.task].Name, r.err)
				cancel()
			}
		case <-graceExpired:
			return errors.Join(firstErr, timeoutError(tasks, running))
		}
	}
	return firstErr
}

// timeoutError returns an error that names the tasks that still run.
func timeoutError(tasks []Task, running map[int]bool) error {
	var names []string
	for i, t := range tasks {
		if running[i] {
			names = append(names, t.Name)
		}
	}
	return fmt.Errorf("tasks did not end in time: %s", strings.Join(names, ", "))
}
