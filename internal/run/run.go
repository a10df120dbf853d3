// Package run owns the run group: tasks that live and end together.
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Task is something that runs until it is told to end.
type Task struct {
	Name string // for errors
	// Run returns soon after ctx ends. Its error ends the whole group, unless it
	// comes of ctx ending; nil says that the task is done and the others go on.
	Run func(ctx context.Context) error
}

// ErrDone is what a task returns to end its group, which has then done its work.
var ErrDone = errors.New("run: done")

// Group runs tasks, each on a goroutine of its own, until ctx ends, a task
// returns an error, or all are done. It then ends the context of those that
// still run and waits for them, at most for grace; 0 means without limit.
//
// It returns the first error, with the name of its task, and nil if there was
// none before ctx ended. Tasks that did not end in time are named in an error
// joined to it: their goroutines are left behind, and the process should end.
// ErrDone is none.
// A panic of a task is not contained.
func Group(ctx context.Context, grace time.Duration, tasks ...Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		task int
		err  error
	}
	results := make(chan result, len(tasks)) // so that nobody is held up whom we no longer wait for
	running := make(map[int]bool, len(tasks))
	for i, t := range tasks {
		running[i] = true
		go func() { results <- result{i, t.Run(ctx)} }()
	}

	var first error
	ending := ctx.Done()
	var patience <-chan time.Time // nil: the group is not ending, or may take its time
	for len(running) > 0 {
		select {
		case <-ending:
			ending = nil
			if grace > 0 {
				timer := time.NewTimer(grace)
				defer timer.Stop()
				patience = timer.C
			}
		case r := <-results:
			delete(running, r.task)
			// What a task says once it was told to end is nothing new.
			if errors.Is(r.err, ErrDone) {
				cancel()
			} else if r.err != nil && first == nil && !(ctx.Err() != nil && errors.Is(r.err, ctx.Err())) {
				first = fmt.Errorf("%s: %w", tasks[r.task].Name, r.err)
				cancel()
			}
		case <-patience:
			return errors.Join(first, stuck(tasks, running))
		}
	}
	return first
}

// stuck names the tasks that still run.
func stuck(tasks []Task, running map[int]bool) error {
	var names []string
	for i, t := range tasks {
		if running[i] {
			names = append(names, t.Name)
		}
	}
	return fmt.Errorf("did not end in time: %s", strings.Join(names, ", "))
}
