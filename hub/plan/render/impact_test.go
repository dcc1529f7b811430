package render

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/plans"
)

func TestImpactOf(t *testing.T) {
	with := func(env ...string) plans.Plan {
		return plans.Plan{Instructions: []plans.Instruction{{}, {CommonInstruction: plans.CommonInstruction{Name: InstallInstruction, Env: env}}}}
	}
	also := func(env ...string) plans.Plan { return with(append(env, "RESTART_STAMP=r", "DRAIN_HASH=d")...) }
	linux := also()
	windows := with("WINS_RESTART_STAMP=r", "WINS_DRAIN_HASH=d")
	noop, restarts, saves := with(), with(), with()
	noop.Instructions[1].Command, noop.Instructions[1].Args = "/bin/sh", []string{"-c", ":"}
	restarts.Instructions = append(slices.Clone(noop.Instructions), plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: RestartInstruction, Env: []string{"DROVER_OPERATION=u/s"}}})
	saves.Instructions = append(slices.Clone(noop.Instructions), plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: "etcd-snapshot-save", Env: []string{"DROVER_OPERATION=u/s"}}})
	tests := map[string]struct {
		before, after plans.Plan
		want          Impact
	}{
		"equal":                                       {linux, linux, ImpactNone},
		"restart":                                     {linux, with("RESTART_STAMP=s", "DRAIN_HASH=d"), ImpactRestart},
		"drain":                                       {linux, with("RESTART_STAMP=s", "DRAIN_HASH=e"), ImpactDrain},
		"Windows, equal":                              {windows, windows, ImpactNone},
		"Windows, restart":                            {windows, with("WINS_RESTART_STAMP=s", "WINS_DRAIN_HASH=d"), ImpactRestart},
		"Windows, drain":                              {windows, with("WINS_RESTART_STAMP=s", "WINS_DRAIN_HASH=e"), ImpactDrain},
		"Windows, of another hub":                     {with(`$env:WINS_RESTART_STAMP="r"`, `$env:WINS_DRAIN_HASH="d"`), windows, ImpactNone},
		"no stamps before":                            {plans.Plan{}, linux, ImpactDrain},
		"no stamps after":                             {linux, with(), ImpactDrain},
		"no restart stamp":                            {linux, with("DRAIN_HASH=d"), ImpactRestart},
		"an installation that does nothing now":       {linux, noop, ImpactDrain},
		"one that did nothing before":                 {noop, linux, ImpactDrain},
		"one that does nothing, with a task":          {noop, saves, ImpactNone},
		"one that does nothing, with another task":    {saves, noop, ImpactNone},
		"one that does nothing, and a task that does": {saves, restarts, ImpactRestart},
		"a proxy":                                     {linux, also("https_proxy=x"), ImpactRestart},
		"another proxy":                               {also("NO_PROXY=x"), also("NO_PROXY=y"), ImpactRestart},
		"no data directory any more":                  {also("K3S_DATA_DIR=/x"), linux, ImpactRestart},
		"a variable of containerd":                    {linux, also("CONTAINERD_X=1"), ImpactRestart},
		"variables in another order":                  {also("NO_PROXY=x", "RKE2_A=b"), also("RKE2_A=b", "NO_PROXY=x"), ImpactNone},
		"variables of another hub, in Windows":        {also(`$env:NO_PROXY="x"`), also("NO_PROXY=x"), ImpactNone},
		"a variable of the installer":                 {linux, also("INSTALL_K3S_X=y", "FOO=x"), ImpactNone},
		"other variables look like":                   {linux, with("RESTART_STAMP=r", "DRAIN_HASH=d", "MY_DRAIN_HASH=x"), ImpactNone},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ImpactOf(tc.before, tc.after); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
