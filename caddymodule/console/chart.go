package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// chart is a chart over time, drawn as SVG by its template. Its bars are 1 wide and at most [chartHeight] high; the
// browser stretches them.
type chart struct {
	Title  string
	Ticks  []tick   // of the axis, from its top to 0
	Series []series // of the values of a bar, from the bottom
	Bars   []bar
	Unit   string // of the values
	Spread bool   // instead of a bar: a dot at the first value, and a line from there to the second
}

const (
	chartHeight = 100
	maxSteps    = 4 // between the ticks of an axis
	maxTimes    = 6 // below a chart
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

// tick is a value of the axis, and its place in the drawing.
type tick struct{ Value, Y float64 }

// block is the path of a value.
type block struct{ Class, Title, Path string }

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
	return c.scaled()
}

// newSpread returns a chart of medians, and of the percentiles with the name far.
func newSpread(title, unit, far string, bars []bar) chart {
	series := []series{{"series-0", "p50"}, {"series-others", far}}
	return chart{Title: title, Unit: unit, Bars: bars, Series: series, Spread: true}.scaled()
}

// scaled returns the chart with its axis.
func (c chart) scaled() chart {
	peak, whole := 0., true
	for _, b := range c.Bars {
		top := b.Sum()
		if c.Spread {
			top = slices.Max(b.Values)
		}
		peak, whole = max(peak, top), whole && top == math.Trunc(top)
	}
	c.Ticks = ticks(peak, whole)
	return c
}

// Sum adds up the values.
func (b bar) Sum() (sum float64) {
	for _, v := range b.Values {
		sum += v
	}
	return sum
}

// Times returns the name of each bar, or "" where the names would be too close.
func (c chart) Times() []string {
	times := make([]string, len(c.Bars))
	every := (len(times) + maxTimes - 1) / maxTimes
	for i := len(times) - 1 - (every-1)/2; i >= 0; i -= every {
		times[i] = c.Bars[i].Name
	}
	return times
}

// Text formats a value.
func (c chart) Text(v float64) string {
	if v == math.Trunc(v) { // as numbers of requests are
		return count(v) + " " + c.Unit
	}
	return decimal(v) + " " + c.Unit
}

// title returns the text that a block shows below the pointer.
func (c chart) title(b bar, i int) string {
	return b.Name + ", " + c.Series[i].Name + ": " + c.Text(b.Values[i])
}

// Blocks returns the drawing of all bars. A value of 0 gets none.
func (c chart) Blocks() []block {
	var blocks []block
	for x, b := range c.Bars {
		if c.Spread {
			blocks = append(blocks, c.spread(x, b)...)
			continue
		}
		y := float64(chartHeight)
		for i, v := range b.Values {
			if v <= 0 {
				continue
			}
			height := round(v / c.Ticks[0].Value * chartHeight)
			y -= height
			path := fmt.Sprintf("M%v %vh%vv%vh-%vz", round(float64(x)+barGap/2), round(y), 1-barGap, height, 1-barGap)
			blocks = append(blocks, block{c.Series[i].Class, c.title(b, i), path})
		}
	}
	return blocks
}

// spread returns the line and the dot of a bar. A path without a length is drawn as the round ends of its line.
func (c chart) spread(x int, b bar) []block {
	if b.Sum() == 0 {
		return nil
	}
	y := func(i int) float64 { return round(chartHeight - b.Values[i]/c.Ticks[0].Value*chartHeight) }
	at := fmt.Sprintf("M%v %v", float64(x)+.5, y(0))
	return []block{
		{c.Series[1].Class + " line", c.title(b, 1), fmt.Sprintf("%sV%v", at, y(1))},
		{c.Series[0].Class + " dot", c.title(b, 0), at + "h0"},
	}
}

// round keeps attributes short.
func round(f float64) float64 { return math.Round(f*100) / 100 }

// ticks returns the ticks of an axis, from the first one that is not below peak to 0. Their distance has a first digit
// of 1, 2, 2.5 or 5 and zeros, and is a whole number if the values are.
func ticks(peak float64, whole bool) (list []tick) {
	peak = cmp.Or(peak, 1)
	power := math.Pow(10, math.Floor(math.Log10(peak/maxSteps)))
	for _, digit := range []float64{1, 2, 2.5, 5, 10} {
		step := digit * power
		if n := math.Ceil(peak/step - 1e-9); n <= maxSteps && (!whole || step == math.Trunc(step)) {
			for i := range int(n) + 1 {
				list = append(list, tick{step * (n - float64(i)), round(chartHeight * float64(i) / n)})
			}
			break
		}
	}
	return list
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
