package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// doctorAnswer is what `doctor -o json` prints.
type doctorAnswer struct {
	Worst   doctor.Verdict  `json:"worst"`
	Results []doctor.Result `json:"results"`
}

func newDoctor() *cobra.Command {
	var where place
	var out format
	var all bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps the agent from working, and say what to do",
		Long: `Look for what keeps the agent, or what it installs, from working on this machine: the service, configuration, the hub with its
certificates and clock, proxy, DNS, disk, ports, cgroups, kernel. Nothing is changed; only the hub and the name server are asked.

Exit codes: 0 no problem was found, warnings may be; 1 there is a problem.`,
		Example: "  system-agent doctor\n  system-agent doctor -o json | jq '.results[] | select(.verdict == \"problem\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getuid() != 0 {
				return errors.New("must be run as root, since the agent's files are root's")
			}
			results := doctor.Examine(cmd.Context(), where.patient(cmd.Context()))
			answer := doctorAnswer{Worst: doctor.Worst(results), Results: results}
			if err := out.print(cmd.OutOrStdout(), answer, func(w io.Writer) { writeDoctor(w, answer, all) }); err != nil {
				return err
			}
			if answer.Worst == doctor.Problem {
				return exit(exitError)
			}
			return nil
		},
	}
	where.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "show the checks that do not apply to this machine too")
	return cmd
}

// patient collects what the doctor looks at. What cannot be had is told as such, never an error.
func (p *place) patient(ctx context.Context) doctor.Machine {
	m := doctor.Machine{Run: output}
	m.Config, m.ConfigErr = p.load()
	m.ConfigFile = p.configFile
	m.Environment, m.EnvironmentFrom = serviceEnvironment()
	if m.ConfigErr != nil {
		return m
	}
	v, err := p.look(ctx)
	if err != nil {
		m.AgentErr = err
		return m
	}
	if m.AgentErr = v.Down; v.Down == nil {
		m.Agent = &v.Status
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", v.Status.PID)); err == nil {
			m.Environment, m.EnvironmentFrom = strings.Split(string(env), "\x00"), "the running agent"
		}
	}
	for _, state := range v.Status.Sources {
		raw, err := v.plan(ctx, state)
		if err != nil {
			continue
		}
		if plan, err := plans.Decode(raw); err == nil {
			m.Images, m.Role = append(m.Images, images(plan)...), roleOf(plan, m.Role)
		}
	}
	return m
}

func images(plan plans.Plan) []string {
	var found []string
	for _, one := range plan.Instructions {
		if one.Image != "" {
			found = append(found, one.Image)
		}
	}
	for _, one := range plan.PeriodicInstructions {
		if one.Image != "" {
			found = append(found, one.Image)
		}
	}
	return found
}

// roleOf reads from the installation's environment what the machine becomes.
func roleOf(plan plans.Plan, known doctor.Role) doctor.Role {
	for _, one := range plan.Instructions {
		if one.Image == "" {
			continue
		}
		for _, pair := range one.Env {
			switch name, value, _ := strings.Cut(pair, "="); {
			case name != "INSTALL_RKE2_EXEC" && name != "INSTALL_K3S_EXEC":
			case strings.HasPrefix(value, "agent"):
				return doctor.RoleWorker
			case strings.HasPrefix(value, "server"):
				return doctor.RoleServer
			}
		}
	}
	return known
}

// serviceEnvironment is what systemd would give the agent.
func serviceEnvironment() ([]string, string) {
	var env, from []string
	for _, path := range []string{"/etc/default/" + serviceName, "/etc/sysconfig/" + serviceName, unitEnvironment} {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		from = append(from, path)
		for line := range strings.Lines(string(raw)) {
			if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
				env = append(env, name+"="+strings.Trim(value, `"'`))
			}
		}
	}
	if len(from) == 0 {
		return os.Environ(), "this shell's environment"
	}
	return env, strings.Join(from, " and ")
}

// output runs a program for its standard output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var stdout bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	code, err := host.Machine{}.Attach(ctx, host.Command{Path: name, Args: args, Env: os.Environ()}, &stdout, io.Discard)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: exit code %d", name, code)
	}
	return stdout.String(), err
}

var doctorWords = map[doctor.Verdict]string{doctor.OK: "ok", doctor.Skipped: "-", doctor.Warning: "WARNING", doctor.Problem: "PROBLEM"}

func writeDoctor(w io.Writer, answer doctorAnswer, all bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	count := map[doctor.Verdict]int{}
	for _, r := range answer.Results {
		count[r.Verdict]++
		if r.Verdict == doctor.Skipped && !all {
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", doctorWords[r.Verdict], r.Check, firstLine(r.Seen))
		if r.Advice != "" {
			fmt.Fprintf(table, "\t\t-> %s\n", r.Advice)
		}
	}
	_ = table.Flush()
	fmt.Fprintf(w, "\n%d problems, %d warnings\n", count[doctor.Problem], count[doctor.Warning])
}
