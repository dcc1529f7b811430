package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/plans"
)

const (
	// unitName is the systemd unit of the agent.
	unitName = doctor.UnitName
	// unitEnvironment is the environment file of the unit, which the install script writes.
	unitEnvironment = "/etc/systemd/system/" + unitName + ".env"
	// programTimeout bounds systemctl and journalctl.
	programTimeout = 10 * time.Second
)

// doctorOutput is the output of `doctor -o json`.
type doctorOutput struct {
	Worst   doctor.Verdict  `json:"worst"`
	Results []doctor.Result `json:"results"`
}

func newDoctorOutput(results []doctor.Result) doctorOutput {
	return doctorOutput{Worst: doctor.Worst(results), Results: results}
}

func newDoctor() *cobra.Command {
	var t target
	var out format
	var all bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose problems of the agent",
		Long: `Diagnose problems of the agent: service, configuration, connection to the hub, its certificates and clock, proxy, DNS, disk space
and ports. Nothing is changed; only the hub and the name server are contacted.

The kernel, cgroups and swap are not checked: k3s check-config does that, and the kubelet reports what it cannot use.

Exit codes: 0 no problem found, possibly warnings; 1 a problem was found.`,
		Example: "  system-agent doctor\n  system-agent doctor -o json | jq '.results[] | select(.verdict == \"problem\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireRoot(readsAgentFiles); err != nil {
				return err
			}
			output := newDoctorOutput(doctor.Run(cmd.Context(), t.doctorMachine(cmd.Context())))
			if err := out.print(cmd.OutOrStdout(), output, func(w io.Writer) { writeDoctor(w, output, all) }); err != nil {
				return err
			}
			if output.Worst == doctor.Problem {
				return exitCode(exitError)
			}
			return nil
		},
	}
	t.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also show checks that do not apply to this machine")
	return cmd
}

// doctorMachine collects the input of the checks. What is not available is part of it and never an error.
func (t *target) doctorMachine(ctx context.Context) doctor.Machine {
	m := doctor.Machine{Output: programOutput}
	m.Config, m.ConfigErr = t.load()
	m.ConfigFile = t.configFile
	m.Environment, m.EnvironmentFrom = unitEnvironments()
	if m.ConfigErr != nil {
		return m
	}
	v, err := t.inspect(ctx)
	if err != nil {
		m.AgentErr = err
		return m
	}
	if m.AgentErr = v.notRunning; v.notRunning == nil {
		m.Agent = &v.status
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", v.status.PID)); err == nil {
			m.Environment, m.EnvironmentFrom = strings.Split(string(env), "\x00"), "the running agent"
		}
	}
	for _, state := range v.status.Sources {
		raw, err := v.plan(ctx, state)
		if err != nil {
			continue
		}
		if plan, err := plans.Decode(raw); err == nil {
			m.AddPlan(plan)
		}
	}
	return m
}

// unitEnvironments returns the environment that systemd gives to the agent, and the files from which it comes.
func unitEnvironments() (env []string, from string) {
	var found []string
	for _, path := range []string{"/etc/default/" + unitName, "/etc/sysconfig/" + unitName, unitEnvironment} {
		if variables := readEnvironmentFile(path); variables != nil {
			env, found = append(env, variables...), append(found, path)
		}
	}
	if len(found) == 0 {
		return os.Environ(), "this shell"
	}
	return env, strings.Join(found, " and ")
}

// readEnvironmentFile reads an environment file of systemd as NAME=value; nil if it cannot be read.
func readEnvironmentFile(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	env := []string{}
	for line := range strings.Lines(string(raw)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
			env = append(env, name+"="+unquoted(value))
		}
	}
	return env
}

// Escapes in a value of an environment file, such as the password of a proxy: between double quotes, and without quotes.
var (
	quotedEscape = regexp.MustCompile("\\\\([\\\\\"$`])")
	anyEscape    = regexp.MustCompile(`\\(.)`)
)

// unquoted is a value of an environment file as systemd reads it.
func unquoted(value string) string {
	if literal, found := strings.CutPrefix(value, "'"); found {
		return strings.TrimSuffix(literal, "'")
	}
	if quoted, found := strings.CutPrefix(value, `"`); found {
		return quotedEscape.ReplaceAllString(strings.TrimSuffix(quoted, `"`), "$1")
	}
	return anyEscape.ReplaceAllString(value, "$1")
}

// programOutput runs a program and returns its standard output. An exit code other than 0 is an error.
func programOutput(ctx context.Context, name string, args ...string) (string, error) {
	var stdout bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	code, err := run.Attach(ctx, run.Command{Path: name, Args: args, Env: os.Environ()}, &stdout, io.Discard)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: exit code %d", name, code)
	}
	return stdout.String(), err
}

// verdictTexts are the verdicts in the text output.
var verdictTexts = map[doctor.Verdict]string{doctor.OK: "ok", doctor.Skipped: "-", doctor.Warning: "WARNING", doctor.Problem: "PROBLEM"}

func writeDoctor(w io.Writer, output doctorOutput, all bool) {
	table := newTable(w)
	count := map[doctor.Verdict]int{}
	for _, r := range output.Results {
		count[r.Verdict]++
		if r.Verdict == doctor.Skipped && !all {
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", verdictTexts[r.Verdict], r.Check, firstLine(r.Message))
		if r.Advice != "" {
			fmt.Fprintf(table, "\t\t-> %s\n", r.Advice)
		}
	}
	_ = table.Flush()
	fmt.Fprintf(w, "\n%d problems, %d warnings\n", count[doctor.Problem], count[doctor.Warning])
}
