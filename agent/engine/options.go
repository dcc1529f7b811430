package engine

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/source"
)

// HubName is the name of the source that is the hub. Files and units of other sources have the name in theirs.
const HubName = "hub"

// Options of an Engine. Source, Host, Images, Log and the two directories must be set.
type Options struct {
	// Name of the source, for people and in the names of files and units: "hub" where empty, else unique on the machine.
	Name string
	// Source is where plans come from and reports go to.
	Source source.Source
	// Host is the machine.
	Host host.Host
	// Images unpacks the images of instructions.
	Images Images
	// Log gets what an operator needs, never a plan or an output.
	Log *slog.Logger
	// Environment is what instructions inherit, as NAME=value.
	Environment []string

	// WorkDirectory is where instructions run, each in a folder of its own. Engines may share it.
	WorkDirectory string
	// StateDirectory holds journal, history, backups and runs of this engine alone.
	StateDirectory string
	// PreserveWorkDirectory keeps the folders of instructions, for debugging.
	PreserveWorkDirectory bool
	// AppliedPlanDirectory keeps a copy of each plan, for people and for the next agent; empty keeps none.
	AppliedPlanDirectory string
	// InterlockDirectory is where an install script and the agent announce what they do; empty for none.
	InterlockDirectory string
	// InstructionTimeout is the timeout of instructions that set none; 0 means never.
	InstructionTimeout time.Duration
	// PeriodicTimeout is the timeout of periodic instructions that set none; 0 means never.
	PeriodicTimeout time.Duration
	// Gate lets one plan at a time be applied on a machine. It has the weight 1 and is shared by the engines of the machine; nil where there
	// is only one.
	Gate *semaphore.Weighted
	// Notify is called when the engine is up, and when it begins or ends something; nil for nobody.
	Notify func()
	// Verify returns why nothing of a plan may be executed; nil where everything may. Nothing is written for a plan that it refuses, unless
	// the error wraps source.ErrNotStored: that is reported. What it must remember of a plan that it accepts is on disk when it returns nil.
	Verify func(source.Snapshot) error
}

// Images brings the content of an image into a folder that exists.
type Images interface {
	// Stage pulls an image and unpacks it into dir. It calls progress from time to time with the bytes that have come and their total;
	// progress may be nil, and total is 0 while it is not known.
	Stage(ctx context.Context, image, dir string, progress func(done, total int64)) error
}
