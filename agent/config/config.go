// Package config reads the agent's two files: its configuration and the connection info that names the plan Secret. It only reads; it
// never contacts the hub and never changes anything on the machine.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Defaults of a Config.
const (
	DefaultPath             = "/etc/rancher/agent/config.yaml"
	DefaultImagesDirectory  = "/var/lib/rancher/agent/images"
	DefaultRegistriesFile   = "/etc/rancher/agent/registries.yaml"
	DefaultWorkDirectory    = "/var/lib/rancher/agent/work"
	DefaultStateName        = "state"
	DefaultInstructionTime  = time.Hour
	DefaultPeriodicTime     = 15 * time.Minute
	defaultProviderConfig   = "/var/lib/rancher/credentialprovider/config.yaml"
	defaultProviderBinaries = "/var/lib/rancher/credentialprovider/bin"
)

// Config is the agent's configuration file. Unknown keys are ignored.
type Config struct {
	// WorkDirectory is where instructions run. Whatever an earlier run left there is removed.
	WorkDirectory string `json:"workDirectory"`
	// PreserveWorkDirectory keeps what instructions left, for a look at it.
	PreserveWorkDirectory bool `json:"preserveWorkDirectory"`
	// LocalEnabled takes plans from files of LocalPlanDirectory.
	LocalEnabled       bool   `json:"localEnabled"`
	LocalPlanDirectory string `json:"localPlanDirectory"`
	// RemoteEnabled takes the plan from the Secret that ConnectionInfoFile names.
	RemoteEnabled      bool   `json:"remoteEnabled"`
	ConnectionInfoFile string `json:"connectionInfoFile"`
	// Tunnel lets the hub reach addresses through this machine. Off where it is not set.
	Tunnel Tunnel `json:"tunnel"`
	// PlanSignatures says what becomes of plans that the hub's key has not signed.
	PlanSignatures PlanSignatures `json:"planSignatures"`
	// AppliedPlanDirectory keeps the last plans that were applied; empty keeps none.
	AppliedPlanDirectory string `json:"appliedPlanDirectory"`
	// ImagesDirectory holds image archives that are looked at before any registry.
	ImagesDirectory string `json:"imagesDirectory"`
	// AgentRegistriesFile tells mirrors, credentials and certificates of registries.
	AgentRegistriesFile string `json:"agentRegistriesFile"`
	// ImageCredentialProviderConfig and ImageCredentialProviderBinDirectory are those of the kubelet.
	ImageCredentialProviderConfig       string `json:"imageCredentialProviderConfig"`
	ImageCredentialProviderBinDirectory string `json:"imageCredentialProviderBinDirectory"`
	// ImageCacheBytes bounds the layers that are kept of images that were used; 0 means 8 GiB.
	ImageCacheBytes int64 `json:"imageCacheBytes"`
	// InterlockDirectory holds the files by which install script and agent wait for each other; empty means they do not.
	InterlockDirectory string `json:"interlockDirectory"`
	// MetricsAddress is where metrics and health are told; empty tells them nowhere. See ParseMetricsAddress.
	MetricsAddress string `json:"metricsAddress"`
	// StateDirectory holds the journal and the image cache. Default: "state" beside WorkDirectory.
	StateDirectory string `json:"stateDirectory"`
	// Socket is where the running agent answers the commands; SocketOff turns that off.
	Socket string `json:"socket"`
	// InstructionTimeout and PeriodicTimeout end an instruction that runs longer.
	InstructionTimeout Duration `json:"instructionTimeout"`
	PeriodicTimeout    Duration `json:"periodicTimeout"`
}

// Duration is written like "90s" or "1h30m".
type Duration time.Duration

// UnmarshalJSON reads the text form; a bare number is refused, since nobody could tell its unit.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s is not a duration like \"90s\"", raw)
	}
	value, err := time.ParseDuration(text)
	if err != nil || value <= 0 {
		return fmt.Errorf("%q is not a duration like \"90s\"", text)
	}
	*d = Duration(value)
	return nil
}

// Load reads, completes and validates a configuration file. The file must be the caller's own and of mode 0600.
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

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&c.WorkDirectory, DefaultWorkDirectory},
		{&c.ImagesDirectory, DefaultImagesDirectory},
		{&c.AgentRegistriesFile, DefaultRegistriesFile},
		{&c.ImageCredentialProviderConfig, defaultProviderConfig},
		{&c.ImageCredentialProviderBinDirectory, defaultProviderBinaries},
		{&c.Socket, DefaultSocket},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if c.StateDirectory == "" {
		c.StateDirectory = filepath.Join(filepath.Dir(filepath.Clean(c.WorkDirectory)), DefaultStateName)
	}
	if c.InstructionTimeout == 0 {
		c.InstructionTimeout = Duration(DefaultInstructionTime)
	}
	if c.PeriodicTimeout == 0 {
		c.PeriodicTimeout = Duration(DefaultPeriodicTime)
	}
}

// Validate names every key that does not fit.
func (c Config) Validate() error {
	var errs []error
	if !c.LocalEnabled && !c.RemoteEnabled {
		errs = append(errs, errors.New("remoteEnabled, localEnabled: neither is true, so there is no source of plans"))
	}
	if c.RemoteEnabled && c.ConnectionInfoFile == "" {
		errs = append(errs, errors.New("connectionInfoFile: is empty, and remoteEnabled is true"))
	}
	if c.LocalEnabled && c.LocalPlanDirectory == "" {
		errs = append(errs, errors.New("localPlanDirectory: is empty, and localEnabled is true"))
	}
	if _, err := ParseMetricsAddress(c.MetricsAddress); err != nil {
		errs = append(errs, err)
	}
	if err := c.Tunnel.validate(c.RemoteEnabled); err != nil {
		errs = append(errs, err)
	}
	if c.ImageCacheBytes < 0 {
		errs = append(errs, fmt.Errorf("imageCacheBytes: %d is less than nothing", c.ImageCacheBytes))
	}
	for _, dir := range []struct{ key, value string }{
		{"workDirectory", c.WorkDirectory}, {"stateDirectory", c.StateDirectory},
		{"localPlanDirectory", c.LocalPlanDirectory}, {"connectionInfoFile", c.ConnectionInfoFile},
		{"appliedPlanDirectory", c.AppliedPlanDirectory}, {"interlockDirectory", c.InterlockDirectory},
	} {
		switch {
		case dir.value == "":
		case !filepath.IsAbs(dir.value):
			errs = append(errs, fmt.Errorf("%s: %q is not absolute", dir.key, dir.value))
		case filepath.Dir(filepath.Clean(dir.value)) == "/":
			// What is in these folders gets removed; a whole /etc or /usr must not.
			errs = append(errs, fmt.Errorf("%s: %q lies too near to the root of the file system", dir.key, dir.value))
		}
	}
	if err := c.validateSocket(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
