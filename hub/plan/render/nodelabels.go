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
		var config struct {
			Labels []string `json:"node-label"`
			More   []string `json:"node-label+"`
		}
		if err := json.Unmarshal(content, &config); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		labels := map[string]string{}
		for _, label := range append(config.Labels, config.More...) {
			key, value, _ := strings.Cut(label, "=")
			labels[key] = value
		}
		return labels, nil
	}
	return nil, nil
}
