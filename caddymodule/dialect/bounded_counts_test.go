package dialect

// countedRows are prompts whose tokens are counted.
var countedRows = []boundedRow{
	{
		name: "counted words", input: piecesOf(aChat+`,{"role":"user","content":`, "some words ", `}]}`),
		work: counting(chatOp), maximum: counted / 11,
	},
	{
		name: "counted letters", input: piecesOf(aChat+`,{"role":"user","content":`, "a", `}]}`), work: counting(chatOp),
		maximum: counted,
	},
	{
		name: "counted lines", input: piecesOf(aChat+`,{"role":"user","content":`, ` \n`, `}]}`), work: counting(chatOp),
		maximum: counted / 2,
	},
	{
		name: "counted tabs", input: piecesOf(aChat+`,{"role":"user","content":`, `\t\r\n`, `}]}`), work: counting(chatOp),
		maximum: counted / 3,
	},
	{
		name: "counted signs", input: piecesOf(aChat+`,{"role":"user","content":`, `-=`, `}]}`), work: counting(chatOp),
		maximum: counted / 2,
	},
}
