package hosts

import "strconv"

// machine says how one host is booted.
type machine struct {
	Name   string // of the container, unique on this machine
	Root   string // its root file system
	Netns  string // path of its network namespace
	Binds  []bind
	Unit   string // transient service to run in, where systemd runs this machine
	Groups []string
	V2     bool
}

// bind shows a folder of the machine inside the host.
type bind struct{ From, To string }

// nspawnArgs is the command line that boots a machine. A Kubernetes node runs in it, hence all capabilities, the kernel
// key ring and bpf, a writable /proc/sys and /dev/kmsg.
func nspawnArgs(m machine) []string {
	unified := "0"
	if m.V2 {
		unified = "1"
	}
	args := []string{
		"env", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes", "SYSTEMD_NSPAWN_LOCK=0", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=" + unified,
		"systemd-nspawn", "--quiet", "--boot", "--directory=" + m.Root, "--machine=" + m.Name,
		"--register=no", "--keep-unit", "--settings=no", "--kill-signal=SIGRTMIN+3", "--console=pipe",
		"--network-namespace-path=" + m.Netns, "--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--capability=all", "--system-call-filter=@keyring bpf add_key keyctl", "--bind=/dev/kmsg",
	}
	for _, b := range m.Binds {
		args = append(args, "--bind="+b.From+":"+b.To)
	}
	return args
}

// enterGroups is a shell program: it takes a number n and n cgroup.procs files, enters those groups and becomes the
// command that follows.
const enterGroups = `n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1" || exit 1; shift; n=$((n-1)); done; exec "$@"`

// untilOff is a shell program: it runs the command that follows, again when it ends with 133, by which systemd-nspawn asks to be
// started again since the machine reboots, and passes on the signal that asks for an orderly end.
const untilOff = `trap 'kill -TERM "$pid"' TERM
code=133
while [ "$code" = 133 ]; do
	"$@" &
	pid=$!
	code=143
	while [ "$code" -gt 128 ] && kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; [ "$code" != 133 ] || break; done
done
exit "$code"`

// bootArgs wraps nspawnArgs into what lets the machine reboot, puts it into its control groups and, where there is one, under the
// machine's service manager.
func bootArgs(m machine) []string {
	args := append([]string{"sh", "-c", untilOff, "sh"}, nspawnArgs(m)...)
	if len(m.Groups) > 0 {
		head := append([]string{"sh", "-c", enterGroups, "sh", strconv.Itoa(len(m.Groups))}, m.Groups...)
		args = append(head, args...)
	}
	if m.Unit != "" {
		args = append([]string{"systemd-run", "--quiet", "--collect", "--unit=" + m.Unit, "--property=Delegate=yes",
			"--property=KillMode=mixed", "--property=TasksMax=infinity", "--service-type=exec", "--pipe", "--wait", "--"}, args...)
	}
	return args
}
