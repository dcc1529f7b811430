package bootstrapdata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// ignitionVersion is the oldest of version 3, which everything that reads version 3 understands.
	ignitionVersion = "3.0.0"
	// ignitionScriptPath is in /etc, since /usr is read-only on most systems that Ignition sets up.
	ignitionScriptPath = "/etc/rancher/bootstrap/install.sh"
	ignitionUnitName   = "rancher-bootstrap.service"
)

// ignitionUnit runs the script until it succeeds, and never again after that: Ignition runs once, but a machine may be switched off before
// the script is through.
const ignitionUnit = `[Unit]
Description=Installs the system-agent and registers this machine with its hub
Wants=network-online.target
After=network-online.target
ConditionPathExists=!/etc/rancher/bootstrap/complete
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh ` + ignitionScriptPath + `
ExecStartPost=/bin/touch /etc/rancher/bootstrap/complete
Restart=on-failure
RestartSec=30s

[Install]
WantedBy=multi-user.target
`

// ignition merges the script, as a file and a unit that runs it, into the user's Ignition config. All else of that stays as it is.
func ignition(script []byte, userdata string) ([]byte, error) {
	config := map[string]any{"ignition": map[string]any{"version": ignitionVersion}}
	if strings.TrimSpace(userdata) != "" {
		var err error
		if config, err = parseIgnition(userdata); err != nil {
			return nil, err
		}
	}
	packed, err := gzipped(script)
	if err != nil {
		return nil, err
	}
	file := map[string]any{
		"path": ignitionScriptPath, "mode": 0o600, "overwrite": true,
		"contents": map[string]any{"source": "data:;base64," + base64Text(packed), "compression": "gzip"},
	}
	if err := addTo(config, "storage", "files", "path", file); err != nil {
		return nil, err
	}
	unit := map[string]any{"name": ignitionUnitName, "enabled": true, "contents": ignitionUnit}
	if err := addTo(config, "systemd", "units", "name", unit); err != nil {
		return nil, err
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the Ignition config: %w", err)
	}
	return data, nil
}

// parseIgnition reads an Ignition config of version 3. Numbers stay as they are written.
func parseIgnition(userdata string) (map[string]any, error) {
	config := map[string]any{}
	decoder := json.NewDecoder(bytes.NewBufferString(userdata))
	decoder.UseNumber()
	if err := decoder.Decode(&config); err != nil {
		return nil, invalid("it is not an Ignition config, which is a JSON object (byte %d); write one, with Butane for instance, or set "+
			"spec.userdata.format to cloud-config",
			decoder.InputOffset())
	}
	if decoder.More() {
		return nil, invalid("byte %d: there is more behind the Ignition config; write one JSON object", decoder.InputOffset())
	}
	header, _ := config["ignition"].(map[string]any)
	version, _ := header["version"].(string)
	if !strings.HasPrefix(version, "3.") {
		return nil, invalid("ignition.version must be 3.x, %s for instance", ignitionVersion)
	}
	return config, nil
}

// addTo puts an item in front of the list config[section][list]. key names the field by which items are told apart.
func addTo(config map[string]any, section, list, key string, item map[string]any) error {
	parent, ok := config[section].(map[string]any)
	if !ok && config[section] != nil {
		return invalid("%s must be an object", section)
	}
	if parent == nil {
		parent = map[string]any{}
		config[section] = parent
	}
	items, ok := parent[list].([]any)
	if !ok && parent[list] != nil {
		return invalid("%s.%s must be a list", section, list)
	}
	for i, other := range items {
		if entry, _ := other.(map[string]any); entry[key] == item[key] {
			return invalid("%s.%s[%d]: the hub's own is called %s; take another %s", section, list, i, item[key], key)
		}
	}
	parent[list] = append([]any{item}, items...)
	return nil
}
