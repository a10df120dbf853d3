package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// takeProfile writes a CPU profile of the first build of Weft under the row's load.
func (env *environment) takeProfile(ctx context.Context, r row, subjects []systemUnderTest) error {
	i := slices.IndexFunc(subjects, func(s systemUnderTest) bool { return slices.Contains(env.options.wefts(), s.name) })
	s := subjects[i] // i >= 0: options.check has verified that a build of Weft is measured
	if s.note != "" {
		env.skip(fmt.Sprintf("profile of %s, row %s: %s", s.name, r.name, s.note))
		return nil
	}
	const seconds = 10
	job := env.job(r, s.address, s.pids)
	job.Measure = (seconds + 1) * time.Second
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loadErr := make(chan error, 1)
	go func() {
		_, err := env.load(ctx, job)
		loadErr <- err
	}()
	url := fmt.Sprintf("http://%v/debug/pprof/profile?seconds=%d", s.running.Admin, seconds)
	err := download(ctx, url, env.options.profile)
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-loadErr); err != nil {
		return fmt.Errorf("profile of %s: %w", s.name, err)
	}
	env.logf("profile of %s, row %s: %s", s.name, r.name, env.options.profile)
	return nil
}

// download writes the response body of the URL to the file.
func download(ctx context.Context, url, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // the body was read to the end
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %.200s", url, response.Status, text)
	}
	return os.WriteFile(file, text, 0o644)
}
