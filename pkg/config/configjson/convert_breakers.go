package configjson

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// readCircuitBreakers converts circuit_breakers, which has at most one element for each priority. A priority
// without an element gets the defaults. An explicit 0 means no limit.
func (r *reader) readCircuitBreakers(j *clusterJSON, c *config.Cluster) {
	c.CircuitBreakers, c.HighCircuitBreakers = config.DefaultCircuitBreakers(), config.DefaultCircuitBreakers()
	var seen [config.NumPriorities]bool
	for i := range j.Breakers {
		b := &j.Breakers[i]
		p := priority(b.Priority)
		if seen[p] {
			r.report.Errorf(b.Node, "duplicate priority %v: a cluster has one set of limits for each priority", p)
			continue
		}
		seen[p] = true
		*c.Limits(p) = circuitBreakers(b)
	}
}

// priority converts a priority. An invalid one has been reported.
func priority(text string) config.Priority {
	if strings.EqualFold(text, config.HighPriority.String()) {
		return config.HighPriority
	}
	return config.DefaultPriority
}

// circuitBreakers converts an element of circuit_breakers.
func circuitBreakers(j *breakersJSON) config.CircuitBreakers {
	b := config.CircuitBreakers{
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
