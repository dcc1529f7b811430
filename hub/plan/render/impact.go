package render

import (
	"regexp"
	"slices"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// Impact is what a machine goes through when it is given another plan.
type Impact string

// The impacts, from the least.
const (
	// ImpactNone restarts nothing, so that the change may be delivered at any time.
	ImpactNone Impact = "none"
	// ImpactRestart restarts the distribution, which workloads do not notice.
	ImpactRestart Impact = "restart"
	// ImpactDrain restarts the distribution in a way that workloads may notice: a node is drained first where the cluster's upgrade strategy
	// asks for it.
	ImpactDrain Impact = "drain"
)

// The environment variables by which the installer knows whether something must restart. On Windows they have another name, and hubs
// before this one wrote them as PowerShell would.
const (
	restartStamp = "RESTART_STAMP"
	drainHash    = "DRAIN_HASH"
	winsPrefix   = "WINS_"
)

// ImpactOf says what a machine that has one plan goes through when it is given the other. A plan whose stamps are not known may do
// anything, so the worst is assumed. One that stays without an installation, such as that of a check with the task of another operation,
// restarts only what its tasks do.
func ImpactOf(delivered, wanted plans.Plan) Impact {
	before, after := install(delivered), install(wanted)
	switch {
	case isNoop(before) && isNoop(after):
	case stamp(after, drainHash) == "" || stamp(before, drainHash) != stamp(after, drainHash):
		return ImpactDrain
	case stamp(after, restartStamp) == "" || stamp(before, restartStamp) != stamp(after, restartStamp),
		!slices.Equal(serviceVariables(before), serviceVariables(after)):
		return ImpactRestart
	}
	had := restarts(delivered)
	if slices.ContainsFunc(restarts(wanted), func(id string) bool { return !slices.Contains(had, id) }) {
		return ImpactRestart
	}
	return ImpactNone
}

func install(p plans.Plan) plans.Instruction {
	if i := installIndex(p); i >= 0 {
		return p.Instructions[i]
	}
	return plans.Instruction{}
}

func installIndex(p plans.Plan) int {
	return slices.IndexFunc(p.Instructions, func(i plans.Instruction) bool { return i.Name == InstallInstruction })
}

// serviceVariables are the variables of an installation that installer images keep for the service, which they restart when one of them
// changes: docs/installer.md, and the published images alike.
func serviceVariables(i plans.Instruction) (kept []string) {
	for _, v := range i.Env {
		name, value, _ := strings.Cut(strings.TrimPrefix(v, "$env:"), "=")
		if serviceVariable.MatchString(name) {
			kept = append(kept, name+"="+strings.Trim(value, `"`))
		}
	}
	slices.Sort(kept)
	return kept
}

var serviceVariable = regexp.MustCompile(`^((K3S|RKE2|CONTAINERD)_.*|(?i:(NO|HTTPS?)_PROXY))$`)

// stamp finds a variable of an instruction, under any of the names that it may have.
func stamp(i plans.Instruction, name string) string {
	for _, v := range i.Env {
		key, value, _ := strings.Cut(v, "=")
		if strings.TrimPrefix(strings.TrimPrefix(key, "$env:"), winsPrefix) == name {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
