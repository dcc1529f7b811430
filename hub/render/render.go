package render

import (
	"encoding/base64"

	"github.com/drover-dev/drover/plans"
)

// Plan renders the plan of a machine. The plan is complete only if the problems hold no fatal one; otherwise its Error says why and it
// must not be delivered.
func Plan(in Inputs) (plans.Plan, Problems) {
	b := builder{Inputs: in}
	b.checkMachine()
	b.mergeArgs()
	b.addRegistries()
	b.addCA()
	b.addConfig()
	b.addManifests()
	b.addProbes()
	b.addInstall()
	b.addRemovals()

	problems := b.problems.sorted()
	plan := b.plan
	for _, f := range b.files {
		plan.Files = append(plan.Files, f.File)
	}
	plan.Files = append(plan.Files, b.removed...)
	if err := problems.Err(); err != nil {
		plan.Error = err.Error()
	}
	return plan, problems
}

// builder gathers a plan. Its methods run in the order that Plan calls them in.
type builder struct {
	Inputs

	// args is the configuration file in the making; set by mergeArgs.
	args args
	// dataDir is where the distribution keeps its state; set by mergeArgs.
	dataDir string
	// cni are the network plugins that the cluster asks for; set by mergeArgs.
	cni []string

	files []file
	// removed are the files to delete; set by addRemovals.
	removed  []plans.File
	plan     plans.Plan
	problems Problems
}

// file is a file of the plan and what of it counts for the stamps, where that is not all of it.
type file struct {
	plans.File
	// restart is the content that asks for a restart when it changes, drain the content that workloads may notice too; nil means the whole.
	restart, drain []byte
}

// add appends a file with its content.
func (b *builder) add(f plans.File, content []byte) {
	b.addStamped(file{File: f}, content)
}

func (b *builder) addStamped(f file, content []byte) {
	f.Content = base64.StdEncoding.EncodeToString(content)
	b.files = append(b.files, f)
}

// checkMachine reports what no plan can be made for.
func (b *builder) checkMachine() {
	if b.Machine.OS == "windows" {
		b.problems.fail("machine "+b.Machine.Name, "runs Windows, which is not supported yet")
	}
	if !b.Machine.server() && !b.Machine.Worker {
		b.problems.fail("machine "+b.Machine.Name, "has no role; register it with at least one of --etcd, --controlplane and --worker")
	}
	if b.Cluster.Spec.LocalClusterAuthEndpoint.Enabled {
		b.problems.warn("spec.localClusterAuthEndpoint", "is not supported yet and has no effect")
	}
}
