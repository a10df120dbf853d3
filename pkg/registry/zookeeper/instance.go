package zookeeper

import (
	"encoding/json"
	"fmt"

	"github.com/weft-proxy/weft/pkg/registry"
)

// curatorInstance is an instance in the format of Curator's service discovery. Dubbo 3 and Spring
// Cloud use the same payload.
type curatorInstance struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Address string `json:"address"`
	Port    *int64 `json:"port"`
	Enabled *bool  `json:"enabled"` // only Curator 4 and later
	Payload struct {
		Metadata map[string]string `json:"metadata"`
	} `json:"payload"`
}

// parseInstance parses data as an instance. It skips invalid data.
func (c *content) parseInstance() {
	instance, err := readInstance(c.data)
	if err != nil {
		c.skip(err)
		return
	}
	c.instance = instance
}

func readInstance(text string) (*registry.Instance, error) {
	var raw curatorInstance
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("invalid instance: %w", err)
	}
	if raw.Address == "" {
		return nil, fmt.Errorf("the instance %q has no address", raw.ID)
	}
	instance := registry.Instance{
		Application: raw.Name,
		ID:          raw.ID,
		Host:        raw.Address,
		Weight:      1,
		Healthy:     true, // ZooKeeper removes the znode of a dead instance when its session ends
		Enabled:     raw.Enabled == nil || *raw.Enabled,
		Metadata:    raw.Payload.Metadata,
	}
	if raw.Port != nil {
		if *raw.Port < 0 || *raw.Port > 0xffff {
			return nil, fmt.Errorf("the instance %q has the invalid port %d", raw.ID, *raw.Port)
		}
		instance.Port = uint16(*raw.Port)
	}
	return &instance, nil
}

// readMapping parses the applications that provide an interface. It skips names that are not valid
// as znodes.
func readMapping(text string) []string {
	return registry.FirstApplications(text, func(name string) bool { return checkElement(name) == nil })
}
