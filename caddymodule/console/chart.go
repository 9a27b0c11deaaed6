package console

import (
	"math"
	"strconv"
	"strings"
)

// chart is a bar chart over time, drawn as SVG by its template. Its bars are 1 wide and at most
// [chartHeight] high; the browser stretches them.
type chart struct {
	Title  string
	Label  string // for people who do not see it
	Top    float64
	Series []series // of the values of a bar, from the bottom
	Bars   []bar
	Unit   string // of the values, in the bars' titles
	Levels bool   // a value is what a block adds to those below it; its title shows the height
}

const (
	chartHeight = 100
	maxSeries   = 6 // series of one name; the rest share one more
	barGap      = .2
)

// series is the color and the name of the values that belong together.
type series struct{ Class, Name string }

// bar is one period of a chart, with a value for each series.
type bar struct {
	Name   string
	Values []float64
}

// block is the rectangle of a value.
type block struct {
	Class, Title        string
	X, Y, Width, Height float64
}

// newChart returns a chart. The values of each bar are those of names.
func newChart(title, unit string, names []string, bars []bar) chart {
	c := chart{Title: title, Unit: unit, Bars: bars}
	for i, name := range names {
		class := "series-" + strconv.Itoa(i)
		if i == maxSeries {
			class = "series-others"
		}
		c.Series = append(c.Series, series{class, name})
	}
	peak, period := 0., ""
	for _, b := range bars {
		if sum := b.sum(); sum > peak {
			peak, period = sum, b.Name
		}
	}
	c.Top = roundUp(peak)
	c.Label = title + ", " + c.First() + " to " + c.Last() + ": "
	if peak == 0 {
		c.Label += "none"
	} else {
		c.Label += "at most " + short(peak) + ", " + period
	}
	return c
}

func (b bar) sum() (sum float64) {
	for _, v := range b.Values {
		sum += v
	}
	return sum
}

// Width returns the width of the drawing.
func (c chart) Width() int { return len(c.Bars) }

// Height returns the height of the drawing.
func (chart) Height() int { return chartHeight }

// Half returns the value in the middle of the axis.
func (c chart) Half() float64 { return c.Top / 2 }

// First, Middle and Last name periods of the chart.
func (c chart) First() string  { return c.Bars[0].Name }
func (c chart) Middle() string { return c.Bars[len(c.Bars)/2].Name }
func (c chart) Last() string   { return c.Bars[len(c.Bars)-1].Name }

// Blocks returns the rectangles of all bars. A value of 0 gets none.
func (c chart) Blocks() []block {
	var blocks []block
	for x, b := range c.Bars {
		y, level := float64(chartHeight), 0.
		for i, v := range b.Values {
			if v <= 0 {
				continue
			}
			height := v / c.Top * chartHeight
			if level += v; c.Levels {
				v = level
			}
			value := decimal(v)
			if v == math.Trunc(v) { // as numbers of requests are
				value = count(v)
			}
			y -= height
			title := b.Name + ": "
			if name := c.Series[i].Name; name != "" {
				title = b.Name + ", " + name + ": "
			}
			blocks = append(blocks, block{
				Class: c.Series[i].Class, Title: title + strings.TrimSpace(value+" "+c.Unit),
				X: float64(x) + barGap/2, Y: round(y), Width: 1 - barGap, Height: round(height),
			})
		}
	}
	return blocks
}

// round keeps attributes short.
func round(f float64) float64 { return math.Round(f*100) / 100 }

// roundUp returns the next number with a first digit of 1, 2 or 5 and zeros.
func roundUp(f float64) float64 {
	if f <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(f)))
	for _, digit := range []float64{1, 2, 5} {
		if f <= digit*power {
			return digit * power
		}
	}
	return 10 * power
}

// shortCount is [short] for an integer.
func shortCount(n int64) string { return short(float64(n)) }

// short formats a number with three digits: 12.3k.
func short(f float64) string {
	unit := ""
	for _, next := range []string{"k", "M", "G", "T"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, next
	}
	return strconv.FormatFloat(f, 'g', 3, 64) + unit
}
