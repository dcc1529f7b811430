package render

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// NodeLabels returns the labels that the distribution's configuration in a plan gives to the machine's Node. The distribution applies them
// when it starts, so that a change of labels alone, which restarts nothing, has to reach the Node in another way.
func NodeLabels(c Cluster, plan plans.Plan) (map[string]string, error) {
	path := configPath(c)
	for _, f := range plan.Files {
		if f.Path != path || f.Action == plans.ActionDelete {
			continue
		}
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", path, err)
		}
		var config args
		if err := json.Unmarshal(content, &config); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		labels := map[string]string{}
		for _, key := range []string{"node-label", "node-label+"} {
			list, err := toList(config[key])
			if err != nil {
				continue // there are none
			}
			for _, label := range (args{key: list}).words(key) {
				name, value, _ := strings.Cut(label, "=")
				labels[name] = value
			}
		}
		return labels, nil
	}
	return nil, nil
}
