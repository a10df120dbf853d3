package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// measureOnDemand sends two requests to each of several clusters whose hosts refuse connections,
// and prints their latencies: the first request subscribes to the cluster.
func (m *model) measureOnDemand(ctx context.Context, w *weft) error {
	before := w.cpu()
	var took [2]time.Duration
	n := min(m.updates, m.clusters, m.routes)
	for r := range n {
		for i := range took {
			start := time.Now()
			if err := m.request(ctx, r); err != nil {
				return err
			}
			took[i] += time.Since(start)
		}
	}
	fmt.Printf("one cluster subscribed on demand: its first request takes %.2f ms, the second %.2f; %.2f ms of CPU for both; %d clusters; %d MB resident\n",
		ms(took[0])/float64(n), ms(took[1])/float64(n), ms(w.cpu()-before)/float64(n), n, w.resident()>>20)
	return nil
}

// request makes a request that matches a route.
func (m *model) request(ctx context.Context, route int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/%d/", listenPort, route), nil)
	if err != nil {
		return err
	}
	r.Host = fmt.Sprintf("h%d.test", route-route%m.routesPerHost())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway {
		return fmt.Errorf("route %d: status %d, want %d, because the hosts refuse connections", route, resp.StatusCode, http.StatusBadGateway)
	}
	return nil
}
