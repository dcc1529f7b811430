package cli

import (
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
	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/upgrade"
)

// localName is the folder of local plans below the state and work directories, and "local/" begins the names of their sources.
const localName = "local"

// target is the agent of this machine that a command is about, as its flags name it.
type target struct {
	configFile string
	socket     string
	// source is the plan source; empty is the hub, or the only one.
	source string
}

func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.configFile, "config", "",
		"configuration file of the agent (default: $"+envConfig+", the file of the service, or "+config.DefaultPath+")")
	cmd.Flags().StringVar(&t.socket, "socket", "", "socket of the agent (default: from the configuration)")
}

func (t *target) sourceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.source, "source", "", "plan source: hub or local/<name> (default: hub, or the only source)")
}

// load reads the configuration and completes the flags that are not set. The shell of an operator rarely has the variable that names
// another configuration; the install script writes it into the unit's environment file.
func (t *target) load() (config.Config, error) {
	if err := requireRoot(readsAgentFiles); err != nil {
		return config.Config{}, err
	}
	if t.configFile == "" {
		t.configFile = os.Getenv(envConfig)
	}
	if t.configFile == "" {
		t.configFile = doctor.Variable(readEnvironmentFile(unitEnvironment), envConfig)
	}
	if t.configFile == "" {
		t.configFile = config.DefaultPath
	}
	cfg, err := config.Load(t.configFile)
	if err != nil {
		return config.Config{}, err
	}
	if t.socket == "" {
		t.socket = cfg.SocketPath()
	}
	return cfg, nil
}

// view is what is known about an agent: from the agent while it runs, otherwise from its state directory.
type view struct {
	cfg    config.Config
	client *control.Client
	host   host.Host
	// notRunning is why the agent does not answer; nil when it does.
	notRunning error
	status     control.Status
	// offline is the content of the state directories by source; set when notRunning is.
	offline map[string]engine.Offline
}

// inspect asks the agent for its status, or reads the state directory if no agent is listening.
func (t *target) inspect(ctx context.Context) (*view, error) {
	cfg, err := t.load()
	if err != nil {
		return nil, err
	}
	v := &view{cfg: cfg, host: host.Local{}}
	if t.socket == "" {
		v.notRunning = errors.New("the agent's socket is disabled in the configuration (socket: none)")
		return v, v.readState()
	}
	v.client = control.NewClient(t.socket)
	v.status, v.notRunning = v.client.Status(ctx)
	switch {
	case v.notRunning == nil:
		return v, nil
	case errors.Is(v.notRunning, control.ErrNotRunning):
		return v, v.readState()
	}
	return nil, v.notRunning
}

// inspectSource is inspect with the state of the source that --source selects.
func (t *target) inspectSource(ctx context.Context) (*view, engine.State, error) {
	v, err := t.inspect(ctx)
	if err != nil {
		return nil, engine.State{}, err
	}
	state, err := v.source(t.source)
	return v, state, err
}

// readState reads the state directories of an agent that does not answer.
func (v *view) readState() error {
	v.status = control.Status{StateDirectory: v.cfg.StateDirectory, Sources: []engine.State{},
		Upgrade: upgrade.ReadStatus(v.host, v.cfg.StateDirectory)}
	v.offline = map[string]engine.Offline{}
	for _, dir := range stateDirectories(v.host, v.cfg.StateDirectory) {
		offline, err := engine.ReadOffline(v.host, dir.path, dir.source)
		if err != nil {
			return err
		}
		if offline.State.Source == "" {
			continue
		}
		v.offline[offline.State.Source] = offline
		v.status.Sources = append(v.status.Sources, offline.State)
	}
	return nil
}

// source returns the state of a source by name; an empty name is the hub, or the only source.
func (v *view) source(name string) (engine.State, error) {
	var names []string
	for _, state := range v.status.Sources {
		if state.Source == name || name == "" && (state.Source == engine.HubName || len(v.status.Sources) == 1) {
			return state, nil
		}
		names = append(names, state.Source)
	}
	switch {
	case len(names) == 0:
		return engine.State{}, fmt.Errorf("no plan has been applied on this machine: %s is empty", v.cfg.StateDirectory)
	case name == "":
		return engine.State{}, fmt.Errorf("--source is required: one of %s", strings.Join(names, ", "))
	}
	return engine.State{}, fmt.Errorf("no plan source %q: this agent has %s", name, strings.Join(names, ", "))
}

// history lists the attempts of a source, oldest first, the running one included.
func (v *view) history(ctx context.Context, state engine.State) ([]journal.Attempt, error) {
	var attempts []journal.Attempt
	if v.notRunning != nil {
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

func sameAttempt(a, b journal.Attempt) bool {
	return a.Checksum == b.Checksum && a.Number == b.Number && a.Started.Equal(b.Started)
}

// plan returns the last delivered plan of a source, byte for byte.
func (v *view) plan(ctx context.Context, state engine.State) ([]byte, error) {
	var raw []byte
	if v.notRunning != nil {
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

// stateDirectory is where the engine of a source keeps its journal.
type stateDirectory struct{ source, path string }

// stateDirectories lists the state directory of the hub's engine and those of the local plans.
func stateDirectories(h host.Host, root string) []stateDirectory {
	dirs := []stateDirectory{{source: engine.HubName, path: root}}
	names, _ := h.ReadDir(filepath.Join(root, localName)) // without local plans there is none
	for _, name := range names {
		source := name
		if unescaped, err := url.PathUnescape(name); err == nil {
			source = unescaped
		}
		dirs = append(dirs, stateDirectory{source: localName + "/" + source, path: filepath.Join(root, localName, name)})
	}
	return dirs
}
