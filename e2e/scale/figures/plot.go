package figures

import (
	"fmt"
	"math"
	"strings"
)

// The size of a plot, and the space around its axes, in pixels.
const (
	plotWidth, plotHeight    = 480, 300
	left, right, top, bottom = 64, 24, 40, 44
	plotTicks                = 4
)

// Plot draws a figure over the number of machines as SVG, with a line that continues the first two sizes.
func Plot(f Figure, runs []Run) string {
	var machines, values []float64
	for _, r := range runs {
		machines, values = append(machines, float64(r.Machines)), append(values, f.Value(r))
	}
	var maxX, maxY float64
	for i := range machines {
		maxX, maxY = max(maxX, machines[i]), max(maxY, values[i])
	}
	a := axes{maxX: roundUp(maxX), maxY: roundUp(maxY)}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, plotHeight, plotWidth, plotHeight)
	out.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	title := f.Name
	if f.Unit != "" {
		title += " (" + f.Unit + ")"
	}
	fmt.Fprintf(&out, `<text x="%d" y="22" font-size="14">%s</text>`+"\n", left, title)
	a.draw(&out)
	if len(machines) > 1 && machines[1] > machines[0] {
		slope := (values[1] - values[0]) / (machines[1] - machines[0])
		end := values[0] + slope*(maxX-machines[0])
		fmt.Fprintf(&out, `<path d="M%s L%s" stroke="#999" stroke-dasharray="5 4" fill="none"/>`+"\n",
			a.point(machines[0], values[0]), a.point(maxX, min(max(end, 0), a.maxY)))
	}
	var points []string
	for i := range machines {
		points = append(points, a.point(machines[i], values[i]))
		x, y := a.position(machines[i], values[i])
		fmt.Fprintf(&out, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="#1f5fa8"/>`+"\n", x, y)
	}
	if len(points) > 1 {
		fmt.Fprintf(&out, `<path d="M%s" stroke="#1f5fa8" stroke-width="2" fill="none"/>`+"\n", strings.Join(points, " L"))
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// axes begin at 0.
type axes struct{ maxX, maxY float64 }

func (a axes) position(x, y float64) (float64, float64) {
	return left + x/a.maxX*(plotWidth-left-right), plotHeight - bottom - y/a.maxY*(plotHeight-top-bottom)
}

func (a axes) point(x, y float64) string {
	px, py := a.position(x, y)
	return fmt.Sprintf("%.1f %.1f", px, py)
}

func (a axes) draw(out *strings.Builder) {
	for i := range plotTicks + 1 {
		share := float64(i) / plotTicks
		x, y := a.position(a.maxX*share, a.maxY*share)
		fmt.Fprintf(out, `<path d="M%d %.1f H%d" stroke="#ddd"/>`+"\n", left, y, plotWidth-right)
		fmt.Fprintf(out, `<text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n", left-6, y+4, a.maxY*share)
		fmt.Fprintf(out, `<text x="%.1f" y="%d" text-anchor="middle">%.4g</text>`+"\n", x, plotHeight-bottom+18, a.maxX*share)
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">machines</text>`+"\n", plotWidth-right, plotHeight-8)
}

// roundUp returns the next number of the form 1, 2, 4, 5 or 8 times a power of ten; 1 for 0.
func roundUp(value float64) float64 {
	if value <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, digit := range []float64{1, 2, 4, 5, 8} {
		if value <= digit*power {
			return digit * power
		}
	}
	return 10 * power
}
