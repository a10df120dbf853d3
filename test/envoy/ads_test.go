package envoy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/envoy/ads"
	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/compare"
	"github.com/weft-proxy/weft/test/ports"
)

// runPlane lets one control plane configure both proxies step by step, and compares which resources
// they reject and how they respond after each step. variant is that of the protocol.
func (paths programs) runPlane(t *testing.T, variant cases.PlaneVariant, free *ports.Range) (groups []*cases.Group, results []*compare.Result) {
	t.Helper()
	plane, err := ads.Listen(freePort(t, free))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Close)
	envoy, weftProxy := paths.newProxies(t, free)
	proxies := []*proxy{envoy, weftProxy}
	steps := cases.PlaneSteps()
	for _, p := range proxies {
		p.addresses.Listeners[variant.Feature()] = freePort(t, free)
		p.normalizer = compare.NewNormalizer(p.addresses.Listeners, p.addresses.Origins)
		p.serve(t, plane, &steps[0])
		p.startFile(t, p.writePlaneBootstrap(t, variant, plane.Port()), func() bool { return p.isReady() })
	}
	for i := range steps {
		step := &steps[i]
		if i > 0 {
			for _, p := range proxies {
				p.serve(t, plane, step)
			}
		}
		for _, p := range proxies {
			p.awaitQuiet(plane)
		}
		group := &cases.Group{Name: fmt.Sprintf("%s.%d", variant.Feature(), i+1), Feature: variant.Feature(), Area: cases.ADS, Cases: step.Cases(variant, i+1)}
		groups = append(groups, group)
		for j, c := range group.Cases {
			views := make([]compare.View, len(proxies))
			for k, p := range proxies {
				if j == 0 {
					types, messages := plane.Rejected(p.name)
					views[k] = compare.View{"rejected": types}
					if len(messages) > 0 {
						t.Logf("%s rejects a resource in the step %q: %s", p.name, step.Name, messages[0])
					}
					continue
				}
				views[k] = compare.NewView(c, client.Run(p.addresses.Listeners[variant.Feature()], &c.Script, c.ID), p.origins.Take(c.ID), p.normalizer)
			}
			results = append(results, compare.NewResult(group.Feature, c, views[0], views[1]))
		}
	}
	for _, p := range proxies {
		p.stop(t)
	}
	return groups, results
}

// serve gives the proxy the resources of a step.
func (p *proxy) serve(t *testing.T, plane *ads.Plane, step *cases.PlaneStep) {
	t.Helper()
	r, err := step.Resources(&p.addresses)
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Serve(t.Context(), p.name, r); err != nil {
		t.Fatal(err)
	}
}

// writePlaneBootstrap writes a file that names the control plane, and returns its path.
func (p *proxy) writePlaneBootstrap(t *testing.T, variant cases.PlaneVariant, port int) string {
	t.Helper()
	text, err := json.MarshalIndent(cases.PlaneBootstrap(variant, p.name, p.addresses.Admin, port), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, string(variant)+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitQuiet waits until the proxy has sent nothing to the control plane for some time. It waits at
// most some seconds, because a step may change nothing for a proxy.
//
//arch:clock a real process is quiet for real time
func (p *proxy) awaitQuiet(plane *ads.Plane) {
	const quiet, limit = 700 * time.Millisecond, 5 * time.Second
	for begin := time.Now(); time.Since(begin) < limit && plane.Quiet(p.name) < quiet; {
		time.Sleep(20 * time.Millisecond)
	}
}
