package render

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// checkHostSh is handed to sh with the instruction, as encryptionKeysSh is.
//
//go:embed scripts/check-host.sh
var checkHostSh string

// checkHostInstruction is the name of the instruction before the installation that checks whether the distribution can start.
const checkHostInstruction = "check-host"

// addHostCheck has a machine checked before the distribution is restarted, with the given RESTART_STAMP: with a profile of CIS, and with
// protect-kernel-defaults, it ends at once on a machine that is not prepared. A server that runs is not stopped for that.
func (b *builder) addHostCheck(restart string) {
	b.plan.Instructions = append(b.plan.Instructions, b.hostCheck(b.stampFile(), restart)...)
}

// hostCheck is the instruction that checks the machine unless the RESTART_STAMP in env is the one in a file; none where nothing is wanted.
func (b *builder) hostCheck(stampFile string, env ...string) []plans.Instruction {
	kernel, user := b.hostNeeds()
	if !kernel && !user {
		return nil
	}
	// Rancher's agent reports what an instruction has printed only where its output is saved.
	return []plans.Instruction{{SaveOutput: true, CommonInstruction: plans.CommonInstruction{
		Name: checkHostInstruction, Command: "/bin/sh", Env: env,
		Args: []string{"-c", checkHostSh, checkHostInstruction, stampFile, strconv.FormatBool(kernel), strconv.FormatBool(user), "/proc/sys"},
	}}}
}

// hostNeeds reports whether the distribution wants the parameters of the kernel that the kubelet would set, and the user etcd.
func (b *builder) hostNeeds() (kernel, user bool) {
	if b.Cluster.Spec.UnmanagedConfig || b.Machine.windows() {
		return false, false
	}
	kernel, _ = b.args["protect-kernel-defaults"].(bool)
	if b.Cluster.Release.Runtime != release.RKE2 {
		return kernel, false
	}
	profile := b.args.text("profile")
	cis := strings.HasPrefix(profile, "cis")
	return kernel || cis, b.Machine.server() && (cis || profile == "etcd")
}

// stampFile is where installer images keep the stamp of the last start.
func (b *builder) stampFile() string {
	if b.Cluster.Release.Runtime == release.RKE2 {
		return b.dataDir + "/system-agent-installer/rke2_restart_stamp"
	}
	return b.dataDir + "/restart_stamp"
}
