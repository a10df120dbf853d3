package xds

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/weft-proxy/weft/pkg/xds/status"
)

// TestOnDemand verifies on-demand resources: a cluster and a route table are used, become unused
// until Weft unsubscribes from them, and are used again. The first requests wait for the resources.
// No request fails, including requests of a concurrent load on other resources.
func TestOnDemand(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newStoppedControlPlane(t), newHost()
			p.partial = true
			p.start()
			busy, first, second := startOrigin(t, "busy"), startOrigin(t, "first"), startOrigin(t, "second")
			admin := host + ":9901"
			startWeft(t, strings.Replace(bootstrap(apiType, p.address, admin), "{", `{"xds_lazy": {"idle": "3s", "wait": "3s"},`, 1), nil)
			c, url, side := client(t), "http://"+host+":10000", "http://"+host+":10001/"
			p.put(edsCluster("busy"), endpointsOf("busy", busy), edsCluster("rare"), endpointsOf("rare", first),
				httpListener("front", host+":10000", "routes"), routeTable("routes", routeTo("/rare", "rare"), routeTo("/", "busy")),
				httpListener("side", host+":10001", "others"), routeTable("others", directRoute("/", "side")))
			p.publish()
			awaitResponse(t, c, url+"/", "busy")
			l := startLoad(t, url+"/")
			for _, want := range []string{"first", "second"} {
				eventually(t, func() string { return unsubscribedMismatch(t, admin, []string{"rare"}, []string{"others"}) })
				burst(t, 16, url+"/rare", want)
				burst(t, 16, side, "side")
				if mismatch := unsubscribedMismatch(t, admin, nil, nil); mismatch != "" {
					t.Errorf("after the requests: %s", mismatch)
				}
				p.put(endpointsOf("rare", second))
				p.publish()
				awaitResponse(t, c, url+"/rare", "second")
			}
			l.stop()
			if nacks := p.nacks(); len(nacks) > 0 {
				t.Errorf("rejected: %v, want none", nacks)
			}
		})
	}
}

// burst sends concurrent requests: n from clients with a new connection each, and n over one new
// HTTP/2 connection.
func burst(t *testing.T, n int, url, want string) {
	t.Helper()
	shared := client(t)
	transport, _ := shared.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	for i := range 2 * n {
		c := shared
		if i%2 == 0 {
			c = client(t)
		}
		wg.Go(func() {
			if got, err := get(t.Context(), c, url); got != want || err != nil {
				t.Errorf("%s responded %q, %v, want %q", url, got, err, want)
			}
		})
	}
	wg.Wait()
}

// unsubscribedMismatch returns "" if exactly the given clusters and route tables are unsubscribed,
// or a description of the mismatch.
func unsubscribedMismatch(t *testing.T, admin string, clusters, tables []string) string {
	t.Helper()
	text, err := get(t.Context(), client(t), "http://"+admin+"/xds")
	if err != nil {
		return err.Error()
	}
	var s status.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if l := s.OnDemand; l == nil || !slices.Equal(l.UnsubscribedClusters, clusters) || !slices.Equal(l.UnsubscribedRoutes, tables) {
		return fmt.Sprintf("unsubscribed: %+v, want clusters %v and routes %v", l, clusters, tables)
	}
	for _, typ := range s.ControlPlanes[0].Types {
		unsubscribed := map[string]int{resource.EndpointType: len(clusters), resource.RouteType: len(tables)}
		if n, ok := unsubscribed[typ.Type]; ok && (typ.Requested != 2-n || typ.Resources != 2-n) {
			return fmt.Sprintf("%d resources of type %s requested and %d accepted, want %d", typ.Requested, typ.Type, typ.Resources, 2-n)
		}
	}
	return ""
}
