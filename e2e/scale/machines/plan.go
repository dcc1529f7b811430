package machines

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// configFile is the name of the file with the configuration of the distribution.
const configFile = "50-rancher.yaml"

// nodeConfig is what a machine's plan says about its Node.
type nodeConfig struct {
	Labels     map[string]string
	ProviderID string
	// Version is that of the distribution that the plan installs.
	Version string
}

// readPlan returns what a plan says about the Node of its machine.
func readPlan(raw []byte) (nodeConfig, plans.Plan, error) {
	plan, err := plans.Decode(raw)
	if err != nil {
		return nodeConfig{}, plan, fmt.Errorf("decoding plan: %w", err)
	}
	for _, file := range plan.Files {
		if path.Base(file.Path) != configFile {
			continue
		}
		content, err := base64.StdEncoding.DecodeString(file.Content)
		if err != nil {
			return nodeConfig{}, plan, fmt.Errorf("decoding %s: %w", file.Path, err)
		}
		config, err := readConfig(content)
		config.Version = installed(plan)
		return config, plan, err
	}
	return nodeConfig{}, plan, fmt.Errorf("the plan has no file %s", configFile)
}

// installerImage matches the installer image of a distribution. A tag cannot have the plus of a version.
var installerImage = regexp.MustCompile(`/system-agent-installer-(k3s|rke2):(v[0-9.]+)-((?:k3s|rke2r)[0-9]+)(?:@|$)`)

// installed is the version of the distribution that a plan installs; empty if it installs none.
func installed(plan plans.Plan) string {
	for _, instruction := range plan.Instructions {
		if parts := installerImage.FindStringSubmatch(instruction.Image); parts != nil {
			return parts[2] + "+" + parts[3]
		}
	}
	return ""
}

// readConfig reads the configuration of the distribution, which is written as JSON.
func readConfig(content []byte) (nodeConfig, error) {
	var config struct {
		Labels  []string `json:"node-label"`
		Kubelet []string `json:"kubelet-arg"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return nodeConfig{}, fmt.Errorf("decoding the configuration: %w", err)
	}
	node := nodeConfig{Labels: map[string]string{}}
	for _, label := range config.Labels {
		key, value, _ := strings.Cut(label, "=")
		node.Labels[key] = value
	}
	for _, arg := range config.Kubelet {
		if id, found := strings.CutPrefix(arg, "provider-id="); found {
			node.ProviderID = id
		}
	}
	return node, nil
}
