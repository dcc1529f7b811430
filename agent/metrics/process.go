package metrics

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// started is when the process started, almost.
var started = time.Now()

// Process adds the metrics of the process, under the names of client_golang's process and Go collectors.
func (p *Page) Process() {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		p.Counter("process_cpu_seconds_total", "CPU time of the agent, without the programs of plans.",
			time.Duration(usage.Utime.Nano()+usage.Stime.Nano()).Seconds())
	}
	if raw, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(raw); len(fields) > 1 {
			if pages, err := strconv.Atoi(string(fields[1])); err == nil {
				p.Gauge("process_resident_memory_bytes", "Memory of the agent, without the programs of plans.",
					float64(pages*os.Getpagesize()))
			}
		}
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.Gauge("process_open_fds", "Open file descriptors.", float64(len(fds)))
	}
	p.Timestamp("process_start_time_seconds", "When the agent started.", started)
	p.Gauge("go_goroutines", "Goroutines.", float64(runtime.NumGoroutine()))
}
