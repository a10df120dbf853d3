package configjson

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// breakers converts circuit_breakers, which has at most one element for each priority. A priority
// without an element gets the defaults. An explicit 0 means no limit.
func (r *reader) breakers(j *clusterJSON, c *config.Cluster) {
	c.Breakers, c.HighBreakers = config.DefaultBreakers(), config.DefaultBreakers()
	var seen [config.Priorities]bool
	for i := range j.Breakers {
		b := &j.Breakers[i]
		p := priority(b.Priority)
		if seen[p] {
			r.report.Errorf(b.Node, "duplicate priority %v: a cluster has one set of limits for each priority", p)
			continue
		}
		seen[p] = true
		*c.Limits(p) = limits(b)
	}
}

// priority converts a priority. An invalid one has been reported.
func priority(text string) config.Priority {
	if strings.EqualFold(text, config.HighPriority.String()) {
		return config.HighPriority
	}
	return config.DefaultPriority
}

// limits converts an element of circuit_breakers.
func limits(j *breakersJSON) config.Breakers {
	b := config.Breakers{
		MaxConnections: j.MaxConnections, MaxPendingRequests: j.MaxPendingRequests,
		MaxRequests: j.MaxRequests, MaxRetries: j.MaxRetries,
	}
	if j.RetryBudget != nil {
		b.RetryBudget = config.RetryBudget(*j.RetryBudget)
		if !j.Node.Get("max_retries").Exists() {
			b.MaxRetries = 0 // the budget replaces the default
		}
	}
	return b
}
