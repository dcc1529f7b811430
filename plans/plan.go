// Package plans is the contract between the hub and the agents: what a plan says, how its checksum is taken, and how plan and
// results are laid out in the plan Secret. It imports nothing of Kubernetes and nothing of this project, so that either side can
// be replaced by another program that keeps the same wire format.
package plans

// Plan is what a machine should look like and what is to be run to get it there. Its JSON form is the value of the key "plan" of
// the plan Secret. Unknown fields are ignored when it is read, so that newer hubs can talk to older agents.
type Plan struct {
	// Files are written in order before the first instruction runs.
	Files []File `json:"files,omitempty"`
	// Instructions run once per delivery of the plan, in order; the first that fails stops the plan.
	Instructions []Instruction `json:"instructions,omitempty"`
	// PeriodicInstructions run again and again, each with its own period.
	PeriodicInstructions []PeriodicInstruction `json:"periodicInstructions,omitempty"`
	// Probes are health checks by name.
	Probes map[string]Probe `json:"probes,omitempty"`
	// Rollback asks that a failure puts back the files that the plan has changed. Agents that do not know it leave them.
	Rollback bool `json:"rollback,omitempty"`
	// Error tells why the hub could not make a complete plan; a plan with an error is never delivered.
	Error string `json:"error,omitempty"`
}

// FileAction tells what happens to a path.
type FileAction string

const (
	// ActionWrite writes the file or creates the directory. It is the default; any value but ActionDelete means it.
	ActionWrite FileAction = ""
	// ActionDelete removes the file, or the whole directory where Directory is set.
	ActionDelete FileAction = "delete"
)

// File is a file or a directory on the machine.
type File struct {
	// Path is absolute.
	Path string `json:"path"`
	// Content is the file's content in standard base64 with padding.
	Content string `json:"content,omitempty"`
	// Directory makes Path a directory; Content is ignored then.
	Directory bool `json:"directory,omitempty"`
	// Permissions are octal digits; empty means 0600 for a file and 0755 for a directory.
	Permissions string `json:"permissions,omitempty"`
	// UID and GID are the numeric owner; -1 leaves it as it is.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Action is what to do with Path.
	Action FileAction `json:"action,omitempty"`
	// Dynamic marks a file whose change needs no restart of the distribution. It is a hint for the hub.
	Dynamic bool `json:"dynamic,omitempty"`
	// Minor marks a file whose change may be delivered at any time. It is a hint for the hub.
	Minor bool `json:"minor,omitempty"`
}

// CommonInstruction is what one-time and periodic instructions share.
type CommonInstruction struct {
	Name string `json:"name,omitempty"`
	// Image is an OCI image whose file system is unpacked into the execution directory first.
	Image string `json:"image,omitempty"`
	// Env are NAME=value pairs on top of the agent's own environment.
	Env  []string `json:"env,omitempty"`
	Args []string `json:"args,omitempty"`
	// Command is looked up in the execution directory's PATH; empty means run.sh of the execution directory.
	Command string `json:"command,omitempty"`
	// Script is the text of a program; it wins over Command and runs under its own shebang, or /bin/sh without one.
	Script string `json:"script,omitempty"`
	// TimeoutSeconds ends the instruction when it runs longer; 0 means the agent's own limit. Agents that do not know it wait for ever.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// Instruction runs once per delivery.
type Instruction struct {
	CommonInstruction
	// SaveOutput reports the standard output under the instruction's name.
	SaveOutput bool `json:"saveOutput,omitempty"`
}

// DefaultPeriodSeconds is the period of a PeriodicInstruction that names none.
const DefaultPeriodSeconds = 600

// PeriodicInstruction runs every PeriodSeconds.
type PeriodicInstruction struct {
	CommonInstruction
	// PeriodSeconds between two runs that succeed; 0 means DefaultPeriodSeconds.
	PeriodSeconds int `json:"periodSeconds,omitempty"`
	// SaveStderrOutput reports the standard error too.
	SaveStderrOutput bool `json:"saveStderrOutput,omitempty"`
}

// Probe is a health check of the kubelet's kind.
type Probe struct {
	Name                string        `json:"name,omitempty"`
	InitialDelaySeconds int           `json:"initialDelaySeconds,omitempty"`
	TimeoutSeconds      int           `json:"timeoutSeconds,omitempty"`
	SuccessThreshold    int           `json:"successThreshold,omitempty"`
	FailureThreshold    int           `json:"failureThreshold,omitempty"`
	HTTPGet             HTTPGetAction `json:"httpGet"`
}

// HTTPGetAction is an HTTP GET; the certificates and the key are paths of files on the machine.
type HTTPGetAction struct {
	URL        string `json:"url,omitempty"`
	Insecure   bool   `json:"insecure,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
	CACert     string `json:"caCert,omitempty"`
}

// ProbeStatus is the last state of a probe.
type ProbeStatus struct {
	Healthy      bool `json:"healthy,omitempty"`
	SuccessCount int  `json:"successCount,omitempty"`
	FailureCount int  `json:"failureCount,omitempty"`
}

// PeriodicOutput is the last outcome of a periodic instruction. Its times are in time.UnixDate; empty means never.
type PeriodicOutput struct {
	Name                  string `json:"name"`
	Stdout                []byte `json:"stdout"`
	Stderr                []byte `json:"stderr"`
	ExitCode              int    `json:"exitCode"`
	LastSuccessfulRunTime string `json:"lastSuccessfulRunTime"`
	Failures              int    `json:"failures"`
	LastFailedRunTime     string `json:"lastFailedRunTime"`
}

// State is the value of the key "plan-state". Where the key is absent, checksums alone decide whether a plan is applied.
type State string

const (
	StatePending    State = "pending"
	StateInProgress State = "in-progress"
	StateSucceeded  State = "succeeded"
	StateFailed     State = "failed"
	StatePaused     State = "paused"
	StateCanceled   State = "canceled"
	// StateCancelled is the older spelling of StateCanceled.
	StateCancelled State = "cancelled"
)

// The keys of the plan Secret's data.
const (
	KeyPlan                  = "plan"
	KeyAppliedPlan           = "appliedPlan"
	KeyMaxFailures           = "max-failures"
	KeyFailureThreshold      = "failure-threshold"
	KeyProbePeriodSeconds    = "probe-period-seconds"
	KeyAppliedChecksum       = "applied-checksum"
	KeyFailedChecksum        = "failed-checksum"
	KeyFailureCount          = "failure-count"
	KeySuccessCount          = "success-count"
	KeyLastApplyTime         = "last-apply-time"
	KeyAppliedOutput         = "applied-output"
	KeyFailedOutput          = "failed-output"
	KeyAppliedPeriodicOutput = "applied-periodic-output"
	KeyProbeStatuses         = "probe-statuses"
	KeyPlanState             = "plan-state"
	KeyPlanRevision          = "plan-revision"
	KeyPlanCheckpoint        = "plan-checkpoint"
	// KeyPlanProgress tells what the agent is doing at the moment; KeyPlanSignature proves who made the plan. Hubs and agents that do
	// not know them leave them alone.
	KeyPlanProgress  = "plan-progress"
	KeyPlanSignature = "plan-signature"
)

// Annotations of the plan Secret by which a plan is interrupted. Their values are "true" and "false".
const (
	AnnotationPaused   = "plan.cattle.io/paused"
	AnnotationCanceled = "plan.cattle.io/canceled"
)

// SecretData is the data of a plan Secret.
type SecretData = map[string][]byte
