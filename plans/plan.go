// Package plans is the contract between the hub and the agents: what a plan says, how its checksum is taken, and how plan and
// results are laid out in the plan Secret. It imports nothing of Kubernetes and nothing of this project, so that either side can
// be replaced by another program that keeps the same wire format.
package plans

import "time"

// Plan is what a machine should look like and what is to be run to get it there. Its JSON form is the value of the key "plan" of
// the plan Secret. Unknown fields are ignored when it is read, so that newer hubs can talk to older agents.
type Plan struct {
	// Files are written in order before the first instruction runs.
	Files []File `json:"files,omitempty"`
	// Instructions run once per delivery of the plan, in order; the first that fails stops the plan.
	Instructions []Instruction `json:"instructions,omitempty"`
	// PeriodicInstructions run repeatedly while the plan is in effect, each with its own period.
	PeriodicInstructions []PeriodicInstruction `json:"periodicInstructions,omitempty"`
	// Probes are health checks by name.
	Probes map[string]Probe `json:"probes,omitempty"`
	// Rollback restores the files that the plan has changed when it finally fails. Agents that do not know the field leave them changed.
	Rollback bool `json:"rollback,omitempty"`
	// Error is why the hub could not render a complete plan; a plan with an error is never delivered.
	Error string `json:"error,omitempty"`
}

// FileAction is what happens to a path.
type FileAction string

const (
	// ActionDelete removes the file, or the directory with everything in it where Directory is set. Any other value, the empty one
	// included, writes the file or creates the directory.
	ActionDelete FileAction = "delete"
)

// File is a file or a directory on the machine.
type File struct {
	// Path is absolute. The root of the file system is not allowed.
	Path string `json:"path"`
	// Content is the file's content in standard base64 with padding.
	Content string `json:"content,omitempty"`
	// Directory makes Path a directory; Content is ignored then.
	Directory bool `json:"directory,omitempty"`
	// Permissions are octal digits up to 07777, such as "0640"; empty means 0600 for a file and 0755 for a directory.
	Permissions string `json:"permissions,omitempty"`
	// UID is the numeric user that owns it; -1 leaves it unchanged.
	UID int `json:"uid,omitempty"`
	// GID is the numeric group that owns it; -1 leaves it unchanged.
	GID int `json:"gid,omitempty"`
	// Action is what to do with Path; empty writes it.
	Action FileAction `json:"action,omitempty"`
	// Dynamic marks a file whose change needs no restart of the distribution. Only the hub reads it.
	Dynamic bool `json:"dynamic,omitempty"`
	// Minor marks a file whose change may be delivered at any time. Only the hub reads it.
	Minor bool `json:"minor,omitempty"`
}

// CommonInstruction is what one-time and periodic instructions share.
type CommonInstruction struct {
	// Name is for messages, and the key under which outputs are reported. It may be empty where nothing is reported.
	Name string `json:"name,omitempty"`
	// Image is an OCI image whose file system is unpacked into the execution directory first; empty for none.
	Image string `json:"image,omitempty"`
	// Env are NAME=value pairs on top of the agent's own environment.
	Env []string `json:"env,omitempty"`
	// Args are the arguments after the program's name.
	Args []string `json:"args,omitempty"`
	// Command is looked up in PATH, at the end of which the execution directory is; empty means run.sh of the execution directory.
	Command string `json:"command,omitempty"`
	// Script is the text of a program; it wins over Command and runs under its own shebang, or /bin/sh without one.
	Script string `json:"script,omitempty"`
	// TimeoutSeconds is after how long the instruction is stopped; 0 means the agent's own limit. Agents that do not know the field never
	// stop it.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// Instruction runs once per delivery.
type Instruction struct {
	CommonInstruction
	// SaveOutput reports the standard output under the instruction's name.
	SaveOutput bool `json:"saveOutput,omitempty"`
}

// maxSeconds is some hundred years, as "never" in a field of seconds. Much more would be a negative time.Duration.
const maxSeconds = int64(100 * 365 * 24 * 60 * 60)

// Seconds is the duration that a field of seconds stands for.
func Seconds(n int) time.Duration {
	return time.Duration(min(int64(n), maxSeconds)) * time.Second
}

// DefaultPeriodSeconds is the period of a PeriodicInstruction that sets none.
const DefaultPeriodSeconds = 600

// PeriodicInstruction runs every PeriodSeconds.
type PeriodicInstruction struct {
	CommonInstruction
	// PeriodSeconds is from the end of a run that succeeded to the next run; 0 means DefaultPeriodSeconds.
	PeriodSeconds int `json:"periodSeconds,omitempty"`
	// SaveStderrOutput reports the standard error beside the standard output, which is always reported.
	SaveStderrOutput bool `json:"saveStderrOutput,omitempty"`
}

// Probe is a health check like a pod's with httpGet; 0 means the same default as there.
type Probe struct {
	// Name is not used: Plan.Probes has the names.
	Name string `json:"name,omitempty"`
	// InitialDelaySeconds is how long to wait before the first check of a plan.
	InitialDelaySeconds int `json:"initialDelaySeconds,omitempty"`
	// TimeoutSeconds is how long one check may take; 0 means 1.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
	// SuccessThreshold is after how many successes in a row the probe is healthy; 0 means 1.
	SuccessThreshold int `json:"successThreshold,omitempty"`
	// FailureThreshold is after how many failures in a row the probe is unhealthy; 0 means 3.
	FailureThreshold int `json:"failureThreshold,omitempty"`
	// HTTPGet is the check.
	HTTPGet HTTPGetAction `json:"httpGet"`
}

// HTTPGetAction is an HTTP GET that succeeds with a status of 2xx. The certificates and the key are paths of PEM files on the machine.
type HTTPGetAction struct {
	// URL is http or https, with a host.
	URL string `json:"url,omitempty"`
	// Insecure accepts any server certificate.
	Insecure bool `json:"insecure,omitempty"`
	// ClientCert identifies the agent to the server; empty for no client certificate.
	ClientCert string `json:"clientCert,omitempty"`
	// ClientKey is the key of ClientCert; both or neither are set.
	ClientKey string `json:"clientKey,omitempty"`
	// CACert is trusted for the server's certificate; empty means the machine's own authorities.
	CACert string `json:"caCert,omitempty"`
}

// ProbeStatus is the last state of a probe, or of a certificate in a file: see CertificateStatus.
type ProbeStatus struct {
	// Healthy follows the thresholds of the probe.
	Healthy bool `json:"healthy,omitempty"`
	// SuccessCount counts successes in a row, up to the threshold.
	SuccessCount int `json:"successCount,omitempty"`
	// FailureCount counts failures in a row, up to the threshold.
	FailureCount int `json:"failureCount,omitempty"`
	// ServerCertificateNotAfter is the end, in UTC, of the certificate that the server presented last, valid or not; zero for a URL without
	// TLS, and until it presented one. Other agents do not report it.
	ServerCertificateNotAfter time.Time `json:"serverCertificateNotAfter,omitzero"`
	// ClientCertificateNotAfter is that of HTTPGet.ClientCert; zero without one.
	ClientCertificateNotAfter time.Time `json:"clientCertificateNotAfter,omitzero"`
	// CertificateNotAfter is the end, in UTC, of the certificate in a file; zero for a probe. Other agents do not report it.
	CertificateNotAfter time.Time `json:"certificateNotAfter,omitzero"`
}

// PeriodicOutput is the last outcome of a periodic instruction. Its times are in the form of FormatTime; empty means never.
type PeriodicOutput struct {
	// Name is that of the instruction.
	Name string `json:"name"`
	// Stdout is the standard output of the last run.
	Stdout []byte `json:"stdout"`
	// Stderr is the standard error of the last run; empty unless the instruction reports it.
	Stderr []byte `json:"stderr"`
	// ExitCode is that of the last run; -1 when it could not be started or a signal ended it.
	ExitCode int `json:"exitCode"`
	// LastSuccessfulRunTime is when the last run that succeeded began.
	LastSuccessfulRunTime string `json:"lastSuccessfulRunTime"`
	// Failures counts failures in a row.
	Failures int `json:"failures"`
	// LastFailedRunTime is when the last run that failed began; empty after a success.
	LastFailedRunTime string `json:"lastFailedRunTime"`
}

// State is the value of the key "plan-state". Where the key is absent, checksums alone decide whether a plan is applied.
//
//	from                       to           by     when
//	any                        pending      hub    it delivers a plan, or retries one that has failed
//	pending, paused, failed    in-progress  agent  an attempt begins; from failed only on request at the machine; plan-revision grows,
//	                                               except when a plan that had begun before a pause goes on
//	in-progress                succeeded    agent  every file and instruction is done
//	in-progress                failed       agent  the last attempt has failed
//	pending, in-progress       paused       agent  AnnotationPaused is "true" and no instruction runs
//	pending, in-progress,      canceled     agent  AnnotationCanceled is "true" and what ran is stopped
//	paused
type State string

const (
	// StatePending is a plan that was delivered and has not begun.
	StatePending State = "pending"
	// StateInProgress is a plan that is being applied, or waits between two attempts.
	StateInProgress State = "in-progress"
	// StateSucceeded is a plan that was applied.
	StateSucceeded State = "succeeded"
	// StateFailed is a plan whose last attempt has failed.
	StateFailed State = "failed"
	// StatePaused is a plan that waits because the hub paused it.
	StatePaused State = "paused"
	// StateCanceled is a plan that was ended because the hub canceled it.
	StateCanceled State = "canceled"
	// StateCancelled is the older spelling of StateCanceled, which agents do not write.
	StateCancelled State = "cancelled"
)

// Terminal reports whether the agent does nothing more for a plan in this state until the hub delivers. States that this version does not
// know are terminal; the empty one is not.
func (s State) Terminal() bool {
	switch s {
	case "", StatePending, StateInProgress, StatePaused:
		return false
	}
	return true
}

// The keys of the plan Secret's data. Each comment says who writes the key; AgentKeys returns those of the agent. Compressed values are
// JSON in gzip. Agents and hubs leave keys alone that they do not know.
const (
	// KeyPlan is the hub's: the plan as JSON.
	KeyPlan = "plan"
	// KeyAppliedPlan is the hub's: the plan that was applied last, as JSON.
	KeyAppliedPlan = "appliedPlan"
	// KeyMaxFailures is the hub's: Delivery.MaxFailures, as a decimal number.
	KeyMaxFailures = "max-failures"
	// KeyFailureThreshold is the hub's: see FailureThreshold, as a decimal number.
	KeyFailureThreshold = "failure-threshold"
	// KeyProbePeriodSeconds is the hub's: Delivery.ProbePeriod in seconds.
	KeyProbePeriodSeconds = "probe-period-seconds"
	// KeyAppliedChecksum is the agent's: Status.AppliedChecksum.
	KeyAppliedChecksum = "applied-checksum"
	// KeyFailedChecksum is the agent's: Status.FailedChecksum.
	KeyFailedChecksum = "failed-checksum"
	// KeyFailureCount is the agent's: Status.FailureCount, as a decimal number.
	KeyFailureCount = "failure-count"
	// KeySuccessCount is the agent's: Status.SuccessCount, as a decimal number.
	KeySuccessCount = "success-count"
	// KeyLastApplyTime is the agent's: Status.LastApplyTime in the form of FormatTime.
	KeyLastApplyTime = "last-apply-time"
	// KeyAppliedOutput is the agent's: Status.AppliedOutput, compressed.
	KeyAppliedOutput = "applied-output"
	// KeyFailedOutput is the agent's: Status.FailedOutput, compressed.
	KeyFailedOutput = "failed-output"
	// KeyAppliedPeriodicOutput is the agent's: Status.PeriodicOutput, compressed.
	KeyAppliedPeriodicOutput = "applied-periodic-output"
	// KeyProbeStatuses is the agent's: Status.ProbeStatuses as JSON. The hub removes it with each delivery.
	KeyProbeStatuses = "probe-statuses"
	// KeyPlanState is the agent's: a State. The hub writes StatePending with each delivery.
	KeyPlanState = "plan-state"
	// KeyPlanRevision is the agent's: Status.Revision, as a decimal number.
	KeyPlanRevision = "plan-revision"
	// KeyPlanCheckpoint is the agent's: a Checkpoint as JSON.
	KeyPlanCheckpoint = "plan-checkpoint"
	// KeyPlanProgress is the agent's: a Progress as JSON.
	KeyPlanProgress = "plan-progress"
	// KeyPlanSignature is the hub's: a Signature as JSON.
	KeyPlanSignature = "plan-signature"
	// KeyAgentUpgrade is the hub's: an AgentUpgrade as JSON.
	KeyAgentUpgrade = "agent-upgrade"
	// KeyAgentStatus is the agent's: an AgentStatus as JSON.
	KeyAgentStatus = "agent-status"
)

// Annotations of the plan Secret by which the hub, or a person, interrupts a plan. Their values are "true" and "false".
const (
	// AnnotationPaused keeps the agent from starting further instructions.
	AnnotationPaused = "plan.cattle.io/paused"
	// AnnotationCanceled stops what runs and ends the plan. It wins over AnnotationPaused.
	AnnotationCanceled = "plan.cattle.io/canceled"
)

// SecretData is the data of a plan Secret.
type SecretData = map[string][]byte
