// Package config reads and validates the agent's two files: its configuration, and the connection info with the kubeconfig for the plan
// Secret. It only reads: it never contacts the hub and never changes anything on the machine.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// DefaultPath is where the install script writes the configuration.
const DefaultPath = "/etc/rancher/agent/config.yaml"

// The defaults of Config.
const (
	defaultImagesDirectory    = "/var/lib/rancher/agent/images"
	defaultRegistriesFile     = "/etc/rancher/agent/registries.yaml"
	defaultWorkDirectory      = "/var/lib/rancher/agent/work"
	defaultStateName          = "state"
	defaultInstructionTimeout = time.Hour
	defaultPeriodicTimeout    = 15 * time.Minute
	defaultUpgradeTimeout     = 10 * time.Minute
	defaultProviderConfig     = "/var/lib/rancher/credentialprovider/config.yaml"
	defaultProviderBinaries   = "/var/lib/rancher/credentialprovider/bin"
)

// Config is the agent's configuration file. Unknown keys are ignored.
type Config struct {
	// WorkDirectory is the absolute path below which instructions run. What a previous run has left there is removed.
	WorkDirectory string `json:"workDirectory"`
	// PreserveWorkDirectory keeps what instructions have left in WorkDirectory, for debugging.
	PreserveWorkDirectory bool `json:"preserveWorkDirectory"`
	// LocalEnabled applies the plan files in LocalPlanDirectory.
	LocalEnabled bool `json:"localEnabled"`
	// LocalPlanDirectory is an absolute path, required if LocalEnabled is true. The agent creates the directory.
	LocalPlanDirectory string `json:"localPlanDirectory"`
	// RemoteEnabled applies the plan of the Secret that ConnectionInfoFile names.
	RemoteEnabled bool `json:"remoteEnabled"`
	// ConnectionInfoFile is the absolute path of a Connection, required if RemoteEnabled is true.
	ConnectionInfoFile string `json:"connectionInfoFile"`
	// Tunnel lets the hub connect to addresses through this machine. It is disabled by default.
	Tunnel Tunnel `json:"tunnel"`
	// PlanSignatures is the policy for plans that are not signed with the hub's key.
	PlanSignatures PlanSignatures `json:"planSignatures"`
	// AppliedPlanDirectory stores the last applied plans; empty stores none.
	AppliedPlanDirectory string `json:"appliedPlanDirectory"`
	// ImagesDirectory contains image archives, which are searched before any registry.
	ImagesDirectory string `json:"imagesDirectory"`
	// AgentRegistriesFile configures mirrors, credentials and certificates of registries, in the format of RKE2's registries.yaml.
	AgentRegistriesFile string `json:"agentRegistriesFile"`
	// ImageCredentialProviderConfig is a path as in the kubelet's flag --image-credential-provider-config.
	ImageCredentialProviderConfig string `json:"imageCredentialProviderConfig"`
	// ImageCredentialProviderBinDirectory is a path as in the kubelet's flag --image-credential-provider-bin-dir.
	ImageCredentialProviderBinDirectory string `json:"imageCredentialProviderBinDirectory"`
	// ImageCacheDirectory contains the cache of image layers, in "layers", of which the agent removes every file that it does not know.
	// Default: StateDirectory.
	ImageCacheDirectory string `json:"imageCacheDirectory"`
	// ImageCacheBytes bounds the cache of image layers; 0 is 8 GiB.
	ImageCacheBytes int64 `json:"imageCacheBytes"`
	// InterlockDirectory contains the files with which install script and agent wait for each other; empty disables that.
	InterlockDirectory string `json:"interlockDirectory"`
	// MetricsAddress is the listen address of metrics and health, see ParseMetricsAddress; empty disables them.
	MetricsAddress string `json:"metricsAddress"`
	// StateDirectory contains the journal. Default: "state" beside WorkDirectory.
	StateDirectory string `json:"stateDirectory"`
	// Socket is the path of the unix socket on which the agent serves the commands; socketOff disables it.
	Socket string `json:"socket"`
	// InstructionTimeout bounds an instruction without timeoutSeconds. Default: 1h.
	InstructionTimeout Duration `json:"instructionTimeout"`
	// PeriodicTimeout bounds a periodic instruction without timeoutSeconds. Default: 15m.
	PeriodicTimeout Duration `json:"periodicTimeout"`
	// UpgradeTimeout is how long a new agent may take to reach the hub before the previous one is put back. Default: 10m.
	UpgradeTimeout Duration `json:"upgradeTimeout"`
}

// Duration is a positive duration such as "90s" or "1h30m".
type Duration time.Duration

// invalidDuration is what anything else is decoded to, so that Validate names its key: an error of the decoder does not.
const invalidDuration Duration = -1

// UnmarshalJSON decodes the text form. A number is invalid, since it has no unit.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	*d = invalidDuration
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil
	}
	if value, err := time.ParseDuration(text); err == nil && value > 0 {
		*d = Duration(value)
	}
	return nil
}

// Load reads a configuration file, sets defaults and validates it. The file must belong to the user of the process and have mode 0600.
func Load(path string) (Config, error) {
	var c Config
	if err := decodeFile(path, &c); err != nil {
		return Config{}, fmt.Errorf("reading configuration: %w", err)
	}
	c.setDefaults()
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// UnknownKeys returns the keys of a configuration file that the agent ignores: those of other agents, and mistyped ones. Keys below another
// are returned as tunnel.enable.
func UnknownKeys(path string) ([]string, error) {
	content := map[string]any{}
	if err := decodeFile(path, &content); err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(content)) {
		if !isKey(reflect.TypeFor[Config](), key) {
			unknown = append(unknown, key)
			continue
		}
		// No other key has keys of its own.
		below, _ := content[key].(map[string]any)
		for _, inner := range slices.Sorted(maps.Keys(below)) {
			if !isKey(reflect.TypeFor[Tunnel](), inner) {
				unknown = append(unknown, key+"."+inner)
			}
		}
	}
	return unknown, nil
}

// isKey reports whether a key is one of a type, in upper or lower case, as the decoder takes it.
func isKey(fields reflect.Type, key string) bool {
	for i := range fields.NumField() {
		if strings.EqualFold(fields.Field(i).Tag.Get("json"), key) {
			return true
		}
	}
	return false
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&c.WorkDirectory, defaultWorkDirectory},
		{&c.ImagesDirectory, defaultImagesDirectory},
		{&c.AgentRegistriesFile, defaultRegistriesFile},
		{&c.ImageCredentialProviderConfig, defaultProviderConfig},
		{&c.ImageCredentialProviderBinDirectory, defaultProviderBinaries},
		{&c.Socket, defaultSocket},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if c.StateDirectory == "" {
		c.StateDirectory = filepath.Join(filepath.Dir(filepath.Clean(c.WorkDirectory)), defaultStateName)
	}
	if c.ImageCacheDirectory == "" {
		c.ImageCacheDirectory = c.StateDirectory
	}
	if c.InstructionTimeout == 0 {
		c.InstructionTimeout = Duration(defaultInstructionTimeout)
	}
	if c.PeriodicTimeout == 0 {
		c.PeriodicTimeout = Duration(defaultPeriodicTimeout)
	}
	if c.UpgradeTimeout == 0 {
		c.UpgradeTimeout = Duration(defaultUpgradeTimeout)
	}
}

// RegistriesFiles are the paths of registries.yaml: that of the agent, the one that hubs write for agents wherever those have their
// configuration, then those of the distributions. The first that exists counts.
func (c Config) RegistriesFiles() []string {
	return slices.Compact([]string{c.AgentRegistriesFile, defaultRegistriesFile,
		"/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml"})
}

// Validate returns an error that lists every invalid key.
func (c Config) Validate() error {
	var errs []error
	if !c.LocalEnabled && !c.RemoteEnabled {
		errs = append(errs, errors.New("remoteEnabled, localEnabled: at least one must be true"))
	}
	if c.RemoteEnabled && c.ConnectionInfoFile == "" {
		errs = append(errs, errors.New("connectionInfoFile: is required if remoteEnabled is true"))
	}
	if c.LocalEnabled && c.LocalPlanDirectory == "" {
		errs = append(errs, errors.New("localPlanDirectory: is required if localEnabled is true"))
	}
	for _, d := range []struct {
		key   string
		value Duration
	}{
		{"instructionTimeout", c.InstructionTimeout}, {"periodicTimeout", c.PeriodicTimeout}, {"upgradeTimeout", c.UpgradeTimeout},
	} {
		if d.value == invalidDuration {
			errs = append(errs, fmt.Errorf("%s: must be a positive duration with its unit, such as \"90s\" or \"1h30m\"", d.key))
		}
	}
	if _, err := ParseMetricsAddress(c.MetricsAddress); err != nil {
		errs = append(errs, err)
	}
	if err := c.Tunnel.validate(c.RemoteEnabled); err != nil {
		errs = append(errs, err)
	}
	if c.ImageCacheBytes < 0 {
		errs = append(errs, fmt.Errorf("imageCacheBytes: must not be negative, got %d", c.ImageCacheBytes))
	}
	for _, dir := range []struct{ key, value string }{
		{"workDirectory", c.WorkDirectory}, {"stateDirectory", c.StateDirectory},
		{"localPlanDirectory", c.LocalPlanDirectory}, {"connectionInfoFile", c.ConnectionInfoFile},
		{"appliedPlanDirectory", c.AppliedPlanDirectory}, {"interlockDirectory", c.InterlockDirectory},
		{"imageCacheDirectory", c.ImageCacheDirectory},
	} {
		switch {
		case dir.value == "":
		case !filepath.IsAbs(dir.value):
			errs = append(errs, fmt.Errorf("%s: must be an absolute path, got %q", dir.key, dir.value))
		case filepath.Dir(filepath.Clean(dir.value)) == "/":
			// The agent removes content of these directories, which must not be that of /etc or /usr.
			errs = append(errs, fmt.Errorf("%s: must not be a top-level directory, got %q", dir.key, dir.value))
		}
	}
	if err := c.validateSocket(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
