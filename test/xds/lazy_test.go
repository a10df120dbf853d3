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

	consumer "github.com/weft-proxy/weft/pkg/xds"
)

// TestLazy verifies on-demand resources: a cluster and a route table are used, become unused until
// Weft unsubscribes from them, and are used again. The first requests wait for the resources, and
// no request fails, including a concurrent load on other resources.
func TestLazy(t *testing.T) {
	for _, form := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p, host := newStopped(t), newHost()
			p.partial = true
			p.start()
			busy, first, second := origin(t, "busy"), origin(t, "first"), origin(t, "second")
			admin := host + ":9901"
			startWeft(t, strings.Replace(bootstrap(form, p.address, admin), "{", `{"xds_lazy": {"idle": "3s", "wait": "3s"},`, 1), nil)
			c, url, side := client(t), "http://"+host+":10000", "http://"+host+":10001/"
			p.put(edsCluster("busy"), endpointsOf("busy", busy), edsCluster("rare"), endpointsOf("rare", first),
				front("front", host+":10000", "routes"), tableOf("routes", to("/rare", "rare"), to("/", "busy")),
				front("side", host+":10001", "others"), tableOf("others", says("/", "beside")))
			p.publish()
			answers(t, c, url+"/", "busy")
			l := playLoad(t, url+"/")
			for _, want := range []string{"first", "second"} {
				eventually(t, func() string { return asleep(t, admin, []string{"rare"}, []string{"others"}) })
				burst(t, 16, url+"/rare", want)
				burst(t, 16, side, "beside")
				if wrong := asleep(t, admin, nil, nil); wrong != "" {
					t.Errorf("in use: %s", wrong)
				}
				p.put(endpointsOf("rare", second))
				p.publish()
				answers(t, c, url+"/rare", "second")
			}
			l.end()
			if all := p.refusals(); len(all) > 0 {
				t.Errorf("refused: %v", all)
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
	var asking sync.WaitGroup
	for i := range 2 * n {
		c := shared
		if i%2 == 0 {
			c = client(t)
		}
		asking.Go(func() {
			if got, err := get(t.Context(), c, url); got != want || err != nil {
				t.Errorf("%s says %q, %v, want %q", url, got, err, want)
			}
		})
	}
	asking.Wait()
}

// asleep returns "" if exactly the given clusters and route tables are unsubscribed, or a
// description of the mismatch.
func asleep(t *testing.T, admin string, clusters, tables []string) string {
	t.Helper()
	text, err := get(t.Context(), client(t), "http://"+admin+"/xds")
	if err != nil {
		return err.Error()
	}
	var s consumer.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if l := s.Lazy; l == nil || !slices.Equal(l.AsleepClusters, clusters) || !slices.Equal(l.AsleepTables, tables) {
		return fmt.Sprintf("asleep are %+v, want clusters %v and routes %v", l, clusters, tables)
	}
	for _, one := range s.Planes[0].Types {
		left := map[string]int{resource.EndpointType: len(clusters), resource.RouteType: len(tables)}
		if n, of := left[one.Type]; of && (one.Wanted != 2-n || one.Held != 2-n) {
			return fmt.Sprintf("%d of %s are asked for and %d held, want %d", one.Wanted, one.Type, one.Held, 2-n)
		}
	}
	return ""
}
