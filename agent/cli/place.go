package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
)

// unitEnvironment is where the install script writes down, among others, which configuration the service uses. A person who types a
// command does not have that in his environment.
const unitEnvironment = "/etc/systemd/system/rancher-system-agent.env"

// hubName is the name of the engine that applies the hub's plans.
const hubName = "hub"

// place is which agent of the machine a command is about.
type place struct {
	configFile string
	socket     string
}

func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.configFile, "config", "", "configuration file of the agent (default: "+envConfig+", that of the service, or "+config.DefaultPath+")")
	cmd.Flags().StringVar(&p.socket, "socket", "", "socket of the agent (default: that of the configuration)")
}

// find fills in what was not said.
func (p *place) find() {
	if p.configFile == "" {
		p.configFile = os.Getenv(envConfig)
	}
	if p.configFile == "" {
		p.configFile = serviceVariable(unitEnvironment, envConfig)
	}
	if p.configFile == "" {
		p.configFile = config.DefaultPath
	}
}

// serviceVariable reads one variable of an environment file of systemd's; empty where there is none.
func serviceVariable(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	value := ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+"="); found {
			value = strings.Trim(text, `"`)
		}
	}
	return value
}

// load finds the configuration and the socket.
func (p *place) load() (config.Config, error) {
	if os.Getuid() != 0 {
		return config.Config{}, errors.New("must be run as root, since the agent's files are root's")
	}
	p.find()
	cfg, err := config.Load(p.configFile)
	if err != nil {
		return config.Config{}, err
	}
	if p.socket == "" {
		p.socket = cfg.SocketPath()
	}
	return cfg, nil
}

// view is what is known of an agent: from itself where it runs, and from its state directory where it does not.
type view struct {
	cfg    config.Config
	client *control.Client
	host   host.Host
	// Down is why the agent does not answer; nil when it does.
	Down   error
	Status control.Status
	// offline is what the state directory told, by source; set when Down is.
	offline map[string]engine.Offline
}

// look asks the agent, or reads what it left.
func (p *place) look(ctx context.Context) (*view, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	v := &view{cfg: cfg, host: host.Machine{}}
	if p.socket == "" {
		v.Down = errors.New("the configuration turns the socket off, so a running agent cannot be asked")
	} else {
		v.client = control.NewClient(p.socket)
		if v.Status, v.Down = v.client.Status(ctx); v.Down == nil {
			return v, nil
		}
	}
	if !errors.Is(v.Down, control.ErrNotRunning) && p.socket != "" {
		return nil, v.Down
	}
	return v, v.readState()
}

// readState reads what an agent that does not answer has left.
func (v *view) readState() error {
	v.Status = control.Status{StateDirectory: v.cfg.StateDirectory, Sources: []engine.State{}}
	v.offline = map[string]engine.Offline{}
	for _, dir := range stateDirectories(v.host, v.cfg) {
		left, err := engine.ReadOffline(v.host, dir.path, dir.source)
		if err != nil {
			return err
		}
		if left.State.Source == "" {
			continue
		}
		v.offline[left.State.Source] = left
		v.Status.Sources = append(v.Status.Sources, left.State)
	}
	return nil
}

// source picks a source by name; without a name, the hub's or the only one.
func (v *view) source(name string) (engine.State, error) {
	var names []string
	for _, state := range v.Status.Sources {
		if state.Source == name || name == "" && (state.Source == hubName || len(v.Status.Sources) == 1) {
			return state, nil
		}
		names = append(names, state.Source)
	}
	switch {
	case len(names) == 0:
		return engine.State{}, fmt.Errorf("no plan has been applied on this machine yet: %s holds nothing", v.cfg.StateDirectory)
	case name == "":
		return engine.State{}, fmt.Errorf("--source must say which of %s is meant", strings.Join(names, ", "))
	}
	return engine.State{}, fmt.Errorf("there is no source of plans named %q, only %s", name, strings.Join(names, ", "))
}

// history lists the attempts of a source, the oldest first and the one that goes on last.
func (v *view) history(ctx context.Context, state engine.State) ([]engine.Attempt, error) {
	var attempts []engine.Attempt
	if v.Down != nil {
		attempts = v.offline[state.Source].History
	} else {
		var err error
		if attempts, err = v.client.History(ctx, state.Source); err != nil {
			return nil, err
		}
	}
	if last := state.Last; last != nil && (len(attempts) == 0 || !sameAttempt(attempts[len(attempts)-1], *last)) {
		attempts = append(attempts, *last)
	}
	return attempts, nil
}

func sameAttempt(a, b engine.Attempt) bool {
	return a.Checksum == b.Checksum && a.Number == b.Number && a.Started.Equal(b.Started)
}

// plan is a source's plan as it was delivered last.
func (v *view) plan(ctx context.Context, state engine.State) ([]byte, error) {
	var raw []byte
	if v.Down != nil {
		raw = v.offline[state.Source].Plan
	} else {
		var err error
		if raw, err = v.client.Plan(ctx, state.Source); err != nil {
			return nil, err
		}
	}
	if len(raw) == 0 {
		return nil, errors.New("no plan has been delivered yet")
	}
	return raw, nil
}

// stateOf is where one engine keeps its journal.
type stateOf struct{ source, path string }

// stateDirectories are those of the hub's engine and of each local plan's.
func stateDirectories(h host.Host, cfg config.Config) []stateOf {
	dirs := []stateOf{{source: hubName, path: cfg.StateDirectory}}
	names, _ := h.ReadDir(filepath.Join(cfg.StateDirectory, localName)) // one that cannot be read has none
	for _, name := range names {
		source := name
		if plain, err := url.PathUnescape(name); err == nil {
			source = plain
		}
		dirs = append(dirs, stateOf{source: localName + "/" + source, path: filepath.Join(cfg.StateDirectory, localName, name)})
	}
	return dirs
}
