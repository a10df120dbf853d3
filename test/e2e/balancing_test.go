package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// startUpstreams starts n upstreams that respond with their index: "0", "1", and so on.
func startUpstreams(t *testing.T, n int) (apps []*origin, addresses []string) {
	t.Helper()
	for i := range n {
		apps = append(apps, startUpstream(t, respondWith(fmt.Sprint(i))))
		addresses = append(addresses, apps[i].address)
	}
	return apps, addresses
}

// bodyText returns the response body. It fails the test if the status is not 200.
func (resp httpResponse) bodyText(t *testing.T) string {
	t.Helper()
	if resp.status != 200 {
		t.Fatalf("response %d %q, want 200", resp.status, resp.body)
	}
	return resp.body
}

// countByUpstream sends a number of requests and returns how many of them each upstream served.
func countByUpstream(t *testing.T, url string, times int) map[string]int {
	t.Helper()
	c, seen := newClient(t), map[string]int{}
	for range times {
		seen[sendRequest(t, c, "GET", url, "").bodyText(t)]++
	}
	return seen
}

// TestHashPolicyIsConsistent verifies that requests with one hash key go to one host: on every
// connection, through every proxy, and after another host has failed.
func TestHashPolicyIsConsistent(t *testing.T) {
	t.Parallel()
	policies := map[string]object{
		"/header":  {"header": object{"key": "X-User"}},
		"/query":   {"query_parameter": object{"name": "user"}},
		"/cookie":  {"http_cookie": object{"name": "user"}},
		"/path":    {"header": object{"key": ":path"}},
		"/address": {"source_ip": object{}},
	}
	for _, policy := range []string{"LB_RINGHASH", "LB_MAGLEV"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			apps, addresses := startUpstreams(t, 5)
			proxies := make([]string, 2)
			for i := range proxies {
				s, front := simpleProxy()
				var routes []object
				for prefix, hashPolicy := range policies {
					routes = append(routes, routeTo(prefix, "app", object{"hash_policy": list{hashPolicy}}))
				}
				s.tables = list{routeTable("front", routes...)}
				ordered := slices.Clone(addresses)
				if i == 1 {
					slices.Reverse(ordered) // the order of hosts has no effect
				}
				s.clusters = list{cluster("app", object{"lb_type": policy}, ordered...)}
				startWeft(t, s.config())
				proxies[i] = "http://" + front
			}
			userHost := func(front, path string, user int) string {
				name := fmt.Sprintf("user-%d", user)
				return sendRequest(t, newClient(t), "GET", front+path+"/"+name+"?user="+name, "", "X-User: "+name, "Cookie: a=b; user="+name).bodyText(t)
			}
			const users = 20
			before := map[string][]string{}
			for path := range policies {
				used := map[string]bool{}
				for user := range users {
					app := userHost(proxies[0], path, user)
					before[path] = append(before[path], app)
					used[app] = true
					if got := userHost(proxies[1], path, user); got != app {
						t.Errorf("%s: user %d goes to %s, and to %s through another proxy, want one host", path, user, app, got)
					}
				}
				if path == "/address" && len(used) != 1 || path != "/address" && len(used) < 3 {
					t.Errorf("%s: %d users go to %d applications, want 1 for /address and at least 3 for other paths", path, users, len(used))
				}
			}
			apps[2].killAndWait(t)
			for path, previous := range before {
				for user := range users {
					if app := userHost(proxies[0], path, user); app != previous[user] && previous[user] != "2" || app == "2" {
						t.Errorf("%s: application 2 has stopped: user %d moved from %s to %s, want only users of 2 to move", path, user, previous[user], app)
					}
				}
			}
		})
	}
}

func TestHashCookieIsSet(t *testing.T) {
	t.Parallel()
	_, addresses := startUpstreams(t, 5)
	s, front := simpleProxy()
	hash := object{"hash_policy": list{object{"http_cookie": object{"name": "stay", "path": "/shop", "ttl": "90s"}}}}
	s.tables = list{routeTable("front", routeTo("/", "app", hash))}
	s.clusters = list{cluster("app", object{"lb_type": "LB_RINGHASH"}, addresses...)}
	startWeft(t, s.config())
	used := map[string]bool{}
	for range 20 {
		first := sendRequest(t, newClient(t), "GET", "http://"+front, "")
		app := first.bodyText(t)
		used[app] = true
		cookies := (&http.Response{Header: first.header}).Cookies()
		if len(cookies) != 1 || cookies[0].Name != "stay" || cookies[0].Path != "/shop" || cookies[0].MaxAge != 90 || !cookies[0].HttpOnly {
			t.Fatalf("Set-Cookie %v, want one of stay", first.header["Set-Cookie"])
		}
		for range 3 {
			next := sendRequest(t, newClient(t), "GET", "http://"+front, "", "Cookie: stay="+cookies[0].Value)
			if got := next.bodyText(t); got != app {
				t.Errorf("with the cookie: application %s, want %s", got, app)
			}
			if cookie := next.header.Get("Set-Cookie"); cookie != "" {
				t.Errorf("second cookie for a client that has one: %s, want none", cookie)
			}
		}
	}
	if len(used) < 3 {
		t.Errorf("20 clients without a cookie went to %d applications, want at least 3", len(used))
	}
}

// TestNoHashCookieWithoutHashBalancer verifies that Weft sets no cookie if the load balancer of the
// cluster does not hash.
func TestNoHashCookieWithoutHashBalancer(t *testing.T) {
	t.Parallel()
	_, addresses := startUpstreams(t, 2)
	s, front := simpleProxy()
	hash := object{"hash_policy": list{object{"http_cookie": object{"name": "stay"}}}}
	s.tables = list{routeTable("front", routeTo("/", "app", hash))}
	s.clusters = list{cluster("app", object{"lb_type": "LB_RANDOM"}, addresses...)}
	startWeft(t, s.config())
	if cookies := sendRequest(t, newClient(t), "GET", "http://"+front, "").header["Set-Cookie"]; cookies != nil {
		t.Errorf("Set-Cookie %v, want none", cookies)
	}
}

// TestHashByAttachment verifies that the header of a hash policy names an attachment in RPC.
func TestHashByAttachment(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		const apps, users = 4, 20
		var addresses []string
		var got [apps]<-chan rawFrame
		for i := range apps {
			address, received := r.startServer(t)
			addresses, got[i] = append(addresses, address), received
		}
		front, _ := r.startProxy(t, nil, list{cluster("app", object{"lb_type": "LB_MAGLEV"}, addresses...)},
			object{"match": object{}, "route": object{"cluster_name": "app", "hash_policy": list{object{"header": object{"key": "user"}}}}})
		userHost := map[int]int{}
		for id := range uint64(3 * users) {
			user := int(id % users)
			c := r.dial(t, front)
			c.send(r.withHeader(t, r.request(id+1), "user", fmt.Sprintf("user-%d", user)))
			if resp := c.receive(); !resp.ok {
				t.Fatalf("call %d: code %d, want success", id+1, resp.code)
			}
			for app, received := range got {
				select {
				case <-received:
					if previous, ok := userHost[user]; ok && previous != app {
						t.Errorf("user %d went to application %d, then to %d, want one host", user, previous, app)
					}
					userHost[user] = app
				default:
				}
			}
		}
		used := map[int]bool{}
		for _, app := range userHost {
			used[app] = true
		}
		if len(userHost) != users || len(used) < 3 {
			t.Errorf("%d users went to %d applications; want %d users and at least 3 hosts", len(userHost), len(used), users)
		}
	})
}

// labeledHost returns a host with labels.
func labeledHost(address string, labels object) object {
	return object{"address": address, "metadata": object{"filter_metadata": object{"mosn.lb": labels}}}
}

func metadataMatch(labels object) object {
	return object{"metadata_match": object{"filter_metadata": object{"mosn.lb": labels}}}
}

func TestSubsetsByRoute(t *testing.T) {
	t.Parallel()
	_, addresses := startUpstreams(t, 4)
	hosts := list{
		labeledHost(addresses[0], object{"version": "1", "stage": "prod"}),
		labeledHost(addresses[1], object{"version": "1", "stage": "test"}),
		labeledHost(addresses[2], object{"version": "2", "stage": "prod"}),
		object{"address": addresses[3]},
	}
	subsets := func(name string, fallback int, preset object) object {
		return cluster(name, object{"hosts": hosts, "lb_subset_config": object{
			"fall_back_policy": fallback, "default_subset": preset, "subset_selectors": list{list{"version"}, list{"version", "stage"}}}})
	}
	s, front := simpleProxy()
	s.clusters = list{subsets("none", 0, nil), subsets("any", 1, nil), subsets("default", 2, object{"stage": "prod"})}
	weighted := func(version string, weight int) object {
		return object{"cluster": object{"name": "none", "weight": weight}.with(metadataMatch(object{"version": version}))}
	}
	s.tables = list{routeTable("front",
		routeTo("/v1/test", "none", metadataMatch(object{"version": "1", "stage": "test"})),
		routeTo("/v1", "none", metadataMatch(object{"version": "1"})),
		routeTo("/v9/none", "none", metadataMatch(object{"version": "9"})),
		routeTo("/v9/any", "any", metadataMatch(object{"version": "9"})),
		routeTo("/v9/default", "default", metadataMatch(object{"version": "9"})),
		routeTo("/any", "any"),
		routeTo("/default", "default"),
		object{"match": object{"prefix": "/weighted"}, "route": object{"weighted_clusters": list{weighted("1", 50), weighted("2", 50)}}},
		routeTo("/", "none"),
	)}
	startWeft(t, s.config())
	for path, want := range map[string]string{
		"/v1/test":    "1",
		"/v1":         "0 1",
		"/v9/any":     "0 1 2 3",
		"/v9/default": "0 2",
		"/any":        "0 1 2 3",
		"/default":    "0 2",
		"/weighted":   "0 1 2",
	} {
		seen := countByUpstream(t, "http://"+front+path, 40)
		var names []string
		for name := range seen {
			names = append(names, name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: applications %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{"/v9/none", "/"} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+path, ""); got.status != 502 {
			t.Errorf("%s: %d, want 502: no host has the labels", path, got.status)
		}
	}
}

// TestSubsetsByMetadataOfFilters verifies that metadata from a filter takes precedence over the
// metadata_match of the route.
func TestSubsetsByMetadataOfFilters(t *testing.T) {
	t.Parallel()
	_, addresses := startUpstreams(t, 3)
	var hosts list
	for i, address := range addresses {
		hosts = append(hosts, labeledHost(address, object{"version": fmt.Sprint(i)}))
	}
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{"hosts": hosts, "lb_subset_config": object{"subset_selectors": list{list{"version"}}}})}
	s.tables = list{routeTable("front", routeTo("/", "app", metadataMatch(object{"version": "2"})))}
	s.listeners = list{httpListener("front", front, object{"stream_filters": list{streamFilter("header_to_metadata", object{
		"request_rules": list{object{"header": "x-version", "on_header_present": object{"metadata_namespace": "envoy.lb", "key": "version"}}}})}})}
	startWeft(t, s.config())
	c := newClient(t)
	for version, want := range map[string]string{"": "2", "0": "0", "1": "1"} {
		for range 5 {
			if got := sendRequest(t, c, "GET", "http://"+front, "", "X-Version: "+version).bodyText(t); got != want {
				t.Errorf("X-Version: %s: application %s, want %s", version, got, want)
			}
		}
	}
	if got := sendRequest(t, c, "GET", "http://"+front, "", "X-Version: 9"); got.status != 502 {
		t.Errorf("version without hosts: %d, want 502", got.status)
	}
}

// TestPrioritiesFailOver verifies that requests move to the second priority as hosts of the first
// fail, and return when those recover. No request fails.
func TestPrioritiesFailOver(t *testing.T) {
	t.Parallel()
	apps, addresses := startUpstreams(t, 4)
	var hosts list
	for i, address := range addresses {
		hosts = append(hosts, object{"address": address, "priority": i / 2})
	}
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{"hosts": hosts})}
	startWeft(t, s.config())
	url := "http://" + front
	if seen := countByUpstream(t, url, 40); seen["0"] != 20 || seen["1"] != 20 {
		t.Errorf("all hosts up: %v, want only the first priority, round robin", seen)
	}
	apps[0].killAndWait(t)
	// With an overprovisioning factor of 1.4, a priority with half of its hosts gets 70% of the
	// requests.
	seen := countByUpstream(t, url, 400)
	if spilled := seen["2"] + seen["3"]; seen["0"] > 0 || spilled < 70 || spilled > 170 {
		t.Errorf("one of two hosts down: %v, want about 280 of 400 requests at the other", seen)
	}
	apps[1].killAndWait(t)
	if seen := countByUpstream(t, url, 40); seen["2"] != 20 || seen["3"] != 20 {
		t.Errorf("first priority down: %v, want the second, round robin", seen)
	}
	startUpstreamAt(t, addresses[0], respondWith("back"))
	startUpstreamAt(t, addresses[1], respondWith("back"))
	until := time.Now().Add(2 * waitTimeout)
	for c, consecutive := newClient(t), 0; consecutive < 20; {
		if sendRequest(t, c, "GET", url, "").bodyText(t) == "back" {
			consecutive++
		} else {
			consecutive = 0
		}
		if time.Now().After(until) {
			t.Fatal("the recovered first priority does not get all requests")
		}
	}
}

// TestLocalitiesShareByWeight verifies that localities share requests by weight, and that a
// locality without usable hosts gets none.
func TestLocalitiesShareByWeight(t *testing.T) {
	t.Parallel()
	apps, addresses := startUpstreams(t, 3)
	zone := func(name string) object { return object{"locality": object{"zone": name}} }
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{
		"hosts": list{
			object{"address": addresses[0]}.with(zone("a")), object{"address": addresses[1]}.with(zone("b")),
			object{"address": addresses[2]}.with(zone("b")),
		},
		"locality_weights": list{zone("a").with(object{"weight": 3}), zone("b").with(object{"weight": 1})},
	})}
	startWeft(t, s.config())
	if seen := countByUpstream(t, "http://"+front, 400); seen["0"] < 250 || seen["0"] > 350 {
		t.Errorf("%v, want about 300 of 400 in zone a", seen)
	}
	apps[0].killAndWait(t)
	if seen := countByUpstream(t, "http://"+front, 20); seen["1"] != 10 || seen["2"] != 10 {
		t.Errorf("zone a down: %v, want zone b, round robin", seen)
	}
}

func balancingExample(t *testing.T) {
	e := loadExample(t, "balancing.json")
	e.run("balancing.json")
	url := "http://" + e.address("2645")
	for _, user := range []string{"ann", "bob"} {
		app := sendRequest(t, newClient(t), "GET", url+"/sticky", "", "X-User: "+user).bodyText(t)
		for range 5 {
			if got := sendRequest(t, newClient(t), "GET", url+"/sticky?user="+user, "").bodyText(t); got != app {
				t.Errorf("%s went to %q, then to %q, want the same", user, app, got)
			}
		}
	}
	if cookie := sendRequest(t, newClient(t), "GET", url+"/sticky", "").header.Get("Set-Cookie"); !strings.HasPrefix(cookie, "weft-host=") || !strings.HasSuffix(cookie, "; Path=/; Max-Age=3600; HttpOnly") {
		t.Errorf("Set-Cookie: %s, want weft-host with Path=/, Max-Age=3600 and HttpOnly", cookie)
	}
	if seen := countByUpstream(t, url+"/canary", 20); seen["app3\n"] != 20 {
		t.Errorf("/canary: %v, want version 2", seen)
	}
	if seen := countByUpstream(t, url+"/mixed", 400); seen["app3\n"] < 4 || seen["app3\n"] > 100 || seen["app4\n"] > 0 {
		t.Errorf("/mixed: %v, want about 40 of 400 at version 2", seen)
	}
	if seen := countByUpstream(t, url+"/zones", 200); seen["app1\n"] < 110 || seen["app1\n"] > 190 || seen["app4\n"] > 0 {
		t.Errorf("/zones: %v, want about 150 of 200 in zone a, and none of the second priority", seen)
	}
}
